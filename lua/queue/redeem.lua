-- queue/redeem: spends a login pass, once; without a held place any more it takes a free one.
--
-- KEYS 1 pass:<line>:<player>  hash
--      2 node:<redeemer>       hash, the caller's row
--      3 node:<server>         hash, of ARGV 6 (any where there is none)
--      4 held:<server>         zset, of ARGV 6 (any where there is none)
--      5 due:<server>          zset, of ARGV 6 (any where there is none)
--      6 node:<link>           hash, of ARGV 7 (any where there is none)
--      7 held:<link>           zset, of ARGV 7 (any where there is none)
--      8 due:<link>            zset, of ARGV 7 (any where there is none)
-- ARGV 1 player, 2 serial, 3 op of the redemption, 4 redeemer, 5 its epoch, 6 server of the pass (empty for none), 7 its
--      link (empty for none), 8 op of the pass, 9 arriveMs, 10 line
-- Answers REDEEMED <until> <claim>  the player may come in (also for a repeat of the same op); until when (store ms) and
--                         as what the place is held: the beat that counts the player names it
--         SPENT           it was redeemed by another operation
--         PLACE_GONE      the place was not taken in time and there is no other: the pass is void, its place in the line stays
--         VOID            it was given up, or another pass stands, or none
--         EXPIRED         its time is over
--         NOT_YOURS       it is for another server and link
--         NO_LEASE        the caller's row is gone or too old
--         FENCED <epoch>  the caller's epoch is over
-- Events  none
-- Bound   one player.
-- Repeat  the same op is answered REDEEMED while the row stands.
-- Example EVALSHA <sha> 8 maitred:{eu}:pass:login:alice maitred:{eu}:node:b1 maitred:{eu}:node:b1 maitred:{eu}:held:b1
--         maitred:{eu}:due:b1 maitred:{eu}:node:b1 maitred:{eu}:pass:login:alice maitred:{eu}:pass:login:alice alice
--         1796000000000000 op9 b1 1796000000000 b1 "" op1 60000 login
if #KEYS ~= 8 or #ARGV ~= 10 then
  return redis.error_reply('ARITY queue/redeem takes 8 keys and 10 arguments')
end
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local pass, node = KEYS[1], KEYS[2]
local server_node, server_held, server_due = KEYS[3], KEYS[4], KEYS[5]
local link_node, link_held, link_due = KEYS[6], KEYS[7], KEYS[8]
local player, serial, op, redeemer, server, link = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[6], ARGV[7]
local arrive_ms = whole(ARGV[9])
if not arrive_ms then
  return redis.error_reply('ARGUMENT queue/redeem: arriveMs is a whole number')
end

-- part time
local time = redis.call('TIME')
-- Milliseconds cut out as text: cheaper than arithmetic and %.0f, and the same digits on every Lua.
local now_text = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now = tonumber(now_text)
-- end part
-- part lease
-- How long a node's lease lasts still, in ms: below 0 it is over, and so it is where the row is not in order. A beat that
-- seems to come is from before the clock stepped back (R-34).
local function lease_left(beat_at, lease_ms)
  return (whole(lease_ms) or 0) - math.abs(now - (whole(beat_at) or 0))
end
-- end part
-- part liveness
-- Whether the node lives in that epoch; if not, the answer that its own call gets.
local function alive(key, epoch)
  local row = redis.call('HMGET', key, 'epoch', 'beat_at', 'lease_ms')
  if not row[1] then
    return false, 'NO_LEASE'
  end
  if row[1] ~= epoch then
    return false, 'FENCED', row[1]
  end
  return lease_left(row[2], row[3]) >= 0, 'NO_LEASE'
end
-- end part
-- part places
-- Claims from before the clock stepped back: they hold for longer than they can last, and are over (R-34).
local stale_claims = {}
local function is_stale(claim, goes_at)
  return (whole(goes_at) or math.huge) > now + (whole(string.match(claim, ' (%d+)$')) or 3600000) + 5000
end
-- How many places are promised or taken without the node's own count; nothing where the key is of another type.
local function promised(held_key)
  local claims = redis.pcall('ZCOUNT', held_key, '(' .. now_text, '+inf')
  if type(claims) ~= 'number' then
    return nil
  end
  local beyond = string.format('(%.0f', now + arrive_ms + 5000)
  local far = redis.call('ZRANGEBYSCORE', held_key, beyond, '+inf', 'WITHSCORES', 'LIMIT', '0', '256')
  for i = 1, #far, 2 do
    if is_stale(far[i], far[i + 1]) then
      claims = claims - 1
      stale_claims[#stale_claims + 1] = { held = held_key, claim = far[i] }
    end
  end
  return claims
end
-- To be called where the script writes.
local function drop_stale_claims()
  for _, stale in ipairs(stale_claims) do
    redis.call('ZREM', stale.held, stale.claim)
  end
end
-- Places of a node that are neither taken, promised nor reserved; a soft cap of 0 is none. A node whose row does not tell its
-- numbers, or one of whose keys is of another type, has no places (R-35): it stands in nobody else's way (R-42).
local function unclaimed(players, soft_cap, held_key, due_key)
  local there, cap = whole(players), whole(soft_cap)
  local held, reserved = promised(held_key), redis.pcall('ZCARD', due_key)
  if not (there and cap and held and type(reserved) == 'number') then
    return 0
  end
  return cap == 0 and 1000000 or cap - there - held - reserved
end
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

local standing = redis.call('HMGET', pass, 'serial', 'op', 'server', 'link', 'expires_at', 'redeemed_at', 'redeem_op',
  'void', 'failed_op', 'held')
local same = standing[1] == serial and standing[2] == ARGV[8]
local promised_by = ARGV[10] .. ':' .. serial
local promise = claim_of(player, promised_by, standing[10])
if same and standing[7] == op then
  return { 'REDEEMED', string.format('%.0f', (whole(standing[6]) or 0) + arrive_ms), promise }
end
local held, why, current = alive(node, ARGV[5])
if not held then
  return { why, current }
end
if not same then
  return { 'VOID' }
end
if standing[6] then
  return { 'SPENT' }
end
if standing[8] == '1' and not standing[9] then
  return { 'PLACE_GONE' }
end
if standing[8] then
  return { 'VOID' }
end
if now >= (whole(standing[5]) or 0) then
  return { 'EXPIRED' }
end
if (standing[3] or '') ~= server or (standing[4] or '') ~= link or (redeemer ~= server and redeemer ~= link) then
  return { 'NOT_YOURS' }
end
-- True where the player's place is held still, or another one is free; and the lease of the node.
local function room(node_key, held_key, due_key)
  local goes_at = redis.call('ZSCORE', held_key, promise)
  local row = redis.call('HMGET', node_key, 'beat_at', 'lease_ms', 'players', 'soft_cap')
  local places = unclaimed(row[3], row[4], held_key, due_key)
  return goes_at and (whole(goes_at) or 0) > now and not is_stale(promise, goes_at)
    or lease_left(row[1], row[2]) >= 0 and places >= 1, whole(row[2])
end
local on_server, on_link, server_lease, link_lease = true, true, nil, nil
if server ~= '' then
  on_server, server_lease = room(server_node, server_held, server_due)
end
if link ~= '' then
  on_link, link_lease = room(link_node, link_held, link_due)
end
if not (on_server and on_link) then
  redis.call('HSET', pass, 'void', '1')
  return { 'PLACE_GONE' }
end

local lasts, place_goes = string.format('%.0f', arrive_ms), string.format('%.0f', now + arrive_ms)
local claim = claim_of(player, promised_by, lasts)
drop_stale_claims()
redis.call('HSET', pass, 'redeemed_at', now_text, 'redeem_op', op, 'held', lasts)
-- From now on under its own name, also where it was promised without, or for another time. Nobody tells the half that did not
-- redeem that the player is there: within a lease its heartbeat counts who came, or it takes nobody.
local function take(held_key, id, lease_ms)
  if promise ~= claim then
    redis.call('ZREM', held_key, promise)
  end
  local counted = lease_ms and string.format('%.0f', now + math.min(arrive_ms, lease_ms + 1000))
  hold(held_key, claim, id ~= redeemer and counted or place_goes)
end
if server ~= '' then
  take(server_held, server, server_lease)
end
if link ~= '' then
  take(link_held, link, link_lease)
end
return { 'REDEEMED', place_goes, claim }
