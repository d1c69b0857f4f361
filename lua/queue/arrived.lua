-- queue/arrived: says that an admitted player is on the server; the place stays held until a beat counts the player.
--
-- KEYS 1 pass:<line>:<player>  hash
--      2 held:<server>         zset, of ARGV 3 (any where there is none)
--      3 held:<link>           zset, of ARGV 4 (any where there is none)
-- ARGV 1 player, 2 serial of the pass, 3 server (empty for none), 4 link (empty for none), 5 arriveMs
-- Answers ARRIVED               noted
--         LATE                  another pass stands, or none, or this one is void
--         NEED <server> <link>  the held: keys of these have to be passed
-- Events  none
-- Bound   one player.
-- Repeat  the arrival is noted once; a place that a beat has counted meanwhile is not held again. One that was redeemed is
--         held for as long as the redemption said: by that time the beat knows which promise it has counted.
-- Example EVALSHA <sha> 3 maitred:{eu}:pass:login:alice maitred:{eu}:held:b1 maitred:{eu}:held:b1 alice
--         1796000000000000 b1 "" 60000
if #KEYS ~= 3 or #ARGV ~= 5 then
  return redis.error_reply('ARITY queue/arrived takes 3 keys and 5 arguments')
end
local pass, server_held, link_held = KEYS[1], KEYS[2], KEYS[3]
local player, arrive_ms = ARGV[1], tonumber(ARGV[5])
if not arrive_ms then
  return redis.error_reply('ARGUMENT queue/arrived: arriveMs is a whole number')
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local standing = redis.call('HMGET', pass, 'serial', 'server', 'link', 'void', 'arrived_at',
  'redeemed_at')
if standing[1] ~= ARGV[2] or standing[4] then
  return { 'LATE' }
end
if standing[5] then
  return { 'ARRIVED' }
end
if (standing[2] or '') ~= ARGV[3] or (standing[3] or '') ~= ARGV[4] then
  return { 'NEED', standing[2] or '', standing[3] or '' }
end
local waits = not standing[6]
local on_server = waits and ARGV[3] ~= '' and redis.call('ZSCORE', server_held, player)
local on_link = waits and ARGV[4] ~= '' and redis.call('ZSCORE', link_held, player)
-- Promises of another line may last longer than this one's.
local function outlive(key)
  if redis.call('PTTL', key) < arrive_ms then
    redis.call('PEXPIRE', key, ARGV[5])
  end
end

redis.call('HSET', pass, 'arrived_at', string.format('%.0f', now))
local place_goes = string.format('%.0f', now + arrive_ms)
if on_server then
  redis.call('ZADD', server_held, place_goes, player)
  outlive(server_held)
end
if on_link then
  redis.call('ZADD', link_held, place_goes, player)
  outlive(link_held)
end
return { 'ARRIVED' }
