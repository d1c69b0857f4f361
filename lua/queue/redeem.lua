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
--      link (empty for none), 8 op of the pass, 9 arriveMs
-- Answers REDEEMED <until> the player may come in (also for a repeat of the same op); until when the place is held, in
--                         store ms
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
--         1796000000000000 op9 b1 1796000000000 b1 "" op1 60000
if #KEYS ~= 8 or #ARGV ~= 9 then
  return redis.error_reply('ARITY queue/redeem takes 8 keys and 9 arguments')
end
local pass, node = KEYS[1], KEYS[2]
local server_node, server_held, server_due = KEYS[3], KEYS[4], KEYS[5]
local link_node, link_held, link_due = KEYS[6], KEYS[7], KEYS[8]
local player, serial, op, redeemer, server, link = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[6], ARGV[7]
local arrive_ms = tonumber(ARGV[9])
if not arrive_ms then
  return redis.error_reply('ARGUMENT queue/redeem: arriveMs is a whole number')
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local now_text = string.format('%.0f', now)
local standing = redis.call('HMGET', pass, 'serial', 'op', 'server', 'link', 'expires_at', 'redeemed_at', 'redeem_op',
  'void', 'failed_op')
local same = standing[1] == serial and standing[2] == ARGV[8]
if same and standing[7] == op then
  return { 'REDEEMED', string.format('%.0f', (tonumber(standing[6] or '') or 0) + arrive_ms) }
end
local row = redis.call('HMGET', node, 'epoch', 'beat_at', 'lease_ms')
if row[1] and row[1] ~= ARGV[5] then
  return { 'FENCED', row[1] }
end
local beat_at, lease_ms = tonumber(row[2] or '') or 0, tonumber(row[3] or '') or 0
if not row[1] or now - beat_at > lease_ms or beat_at - now > lease_ms then
  return { 'NO_LEASE' }
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
if now >= (tonumber(standing[5] or '') or 0) then
  return { 'EXPIRED' }
end
if (standing[3] or '') ~= server or (standing[4] or '') ~= link or (redeemer ~= server and redeemer ~= link) then
  return { 'NOT_YOURS' }
end
-- True where the player's place is held still, or another one is free.
local function room(node_key, held_key, due_key)
  local goes_at = tonumber(redis.call('ZSCORE', held_key, player) or '') or 0
  local state = redis.call('HMGET', node_key, 'players', 'soft_cap')
  local promised = redis.call('ZCOUNT', held_key, '(' .. now_text, '+inf') + redis.call('ZCARD', due_key)
  local cap = tonumber(state[2] or '') or 0
  return goes_at > now or cap == 0 or cap - (tonumber(state[1] or '') or 0) - promised >= 1
end
local on_server = server == '' or room(server_node, server_held, server_due)
local on_link = link == '' or room(link_node, link_held, link_due)
if not (on_server and on_link) then
  redis.call('HSET', pass, 'void', '1')
  return { 'PLACE_GONE' }
end
-- Promises of another line may last longer than this one's.
local function outlive(key)
  if redis.call('PTTL', key) < arrive_ms then
    redis.call('PEXPIRE', key, ARGV[9])
  end
end

local place_goes = string.format('%.0f', now + arrive_ms)
redis.call('HSET', pass, 'redeemed_at', now_text, 'redeem_op', op)
if server ~= '' then
  redis.call('ZADD', server_held, place_goes, player)
  outlive(server_held)
end
if link ~= '' then
  redis.call('ZADD', link_held, place_goes, player)
  outlive(link_held)
end
return { 'REDEEMED', place_goes }
