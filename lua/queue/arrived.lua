-- queue/arrived: says that an admitted player is on the server; the place stays held until a beat counts the player.
--
-- KEYS 1 pass:<line>:<player>  hash
--      2 held:<server>         zset, of ARGV 3 (any where there is none)
--      3 held:<link>           zset, of ARGV 4 (any where there is none)
-- ARGV 1 player, 2 serial of the pass, 3 server (empty for none), 4 link (empty for none), 5 arriveMs, 6 line
-- Answers ARRIVED               noted
--         LATE                  another pass stands, or none, or this one is void
--         NEED <server> <link>  the held: keys of these have to be passed
-- Events  none
-- Bound   one player.
-- Repeat  the arrival is noted once; a place that a beat has counted meanwhile is not held again. One that was redeemed is
--         held for as long as the redemption said: by that time the beat knows which promise it has counted.
-- Example EVALSHA <sha> 3 maitred:{eu}:pass:login:alice maitred:{eu}:held:b1 maitred:{eu}:held:b1 alice
--         1796000000000000 b1 "" 60000 login
if #KEYS ~= 3 or #ARGV ~= 6 then
  return redis.error_reply('ARITY queue/arrived takes 3 keys and 6 arguments')
end
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local pass, server_held, link_held = KEYS[1], KEYS[2], KEYS[3]
local player, arrive_ms = ARGV[1], whole(ARGV[5])
if not arrive_ms then
  return redis.error_reply('ARGUMENT queue/arrived: arriveMs is a whole number')
end

-- part time
local time = redis.call('TIME')
-- Milliseconds cut out as text: cheaper than arithmetic and %.0f, and the same digits on every Lua.
local now_text = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now = tonumber(now_text)
-- end part
-- part claim
-- Who holds a place (R-40): the player, what the place was promised by, how long it lasts in ms, blanks between. A build
-- that does not know this names the player alone, and leaves no such time behind.
local function claim_of(player, promised_by, lasts)
  return lasts and player .. ' ' .. promised_by .. ' ' .. lasts or player
end
-- end part
-- part hold
-- Holds a place. Promises of another line may last longer than this one's.
local function hold(held_key, claim, place_goes)
  redis.call('ZADD', held_key, place_goes, claim)
  if redis.call('PTTL', held_key) < arrive_ms then
    redis.call('PEXPIRE', held_key, string.format('%.0f', arrive_ms))
  end
end
-- end part

local standing = redis.call('HMGET', pass, 'serial', 'server', 'link', 'void', 'arrived_at',
  'redeemed_at', 'held')
if standing[1] ~= ARGV[2] or standing[4] then
  return { 'LATE' }
end
if standing[5] then
  return { 'ARRIVED' }
end
if (standing[2] or '') ~= ARGV[3] or (standing[3] or '') ~= ARGV[4] then
  return { 'NEED', standing[2] or '', standing[3] or '' }
end
local waits, promise = not standing[6], claim_of(player, ARGV[6] .. ':' .. ARGV[2], standing[7])
-- For as long as it was promised, whatever the caller would promise.
arrive_ms = whole(standing[7]) or arrive_ms
local on_server = waits and ARGV[3] ~= '' and redis.call('ZSCORE', server_held, promise)
local on_link = waits and ARGV[4] ~= '' and redis.call('ZSCORE', link_held, promise)

redis.call('HSET', pass, 'arrived_at', now_text)
local place_goes = string.format('%.0f', now + arrive_ms)
if on_server then
  hold(server_held, promise, place_goes)
end
if on_link then
  hold(link_held, promise, place_goes)
end
return { 'ARRIVED' }
