-- token/claim: PENDING -> CLAIMED, by exactly one of any number of racing claimants.
--
-- KEYS 1 token:<player>   hash
--      2 node:<claimant>  hash, the claimant's row (not read for epoch 0)
--      3 node:<server>    hash, the row of the server that issued the token
--      4 control          hash, kill switch entries
-- ARGV 1 id, 2 server (behind KEYS 3), 3 claimant, 4 claimant_epoch (0: a router that is no member), 5 claim_op,
--      6 claim_sig, 7 bytes of control kill as last seen (empty for none), 8 its verdict (on or off),
--      9 bytes of control kill:<claimant>, 10 its verdict, 11 bytes of control kill:<server>, 12 its verdict
-- Answers CLAIMED          this operation holds the token
--         LOST             another claimant holds it, or this claim was reopened since (one of the last four)
--         EXPIRED          its time is over
--         ENDED <end>      the token has ended
--         NONE             there is no such token
--         SERVER_GONE      the incarnation that issued it is gone
--         KILLED <entry>   a kill switch is on
--         CONTROL          other control entries stand than those passed: read, verify, repeat
--         NO_LEASE         the claimant's row is gone or too old
--         FENCED <epoch>   the claimant's epoch is over
--         NEED <server>    the row of that server has to be in KEYS 3
-- Events  none
-- Bound   one row.
-- Repeat  the same claim_op is answered CLAIMED while its claim stands and its time is not over.
-- Example EVALSHA <sha> 4 maitred:{eu}:token:alice maitred:{eu}:node:p1 maitred:{eu}:node:b1 maitred:{eu}:control
--         t1 b1 p1 1796000000000 op1 5ebd00f2.xxx "" off "" off "" off
if #KEYS ~= 4 or #ARGV ~= 12 then
  return redis.error_reply('ARITY token/claim takes 4 keys and 12 arguments')
end
local token, claimant_node, server_node, control = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, server, claimant, claimant_epoch, claim_op = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local time = redis.call('TIME')
-- Milliseconds cut out as text: cheaper than arithmetic and %.0f, and the same digits on every Lua.
local now_text = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now = tonumber(now_text)
local function alive(key, epoch)
  local row = redis.call('HMGET', key, 'epoch', 'beat_at', 'lease_ms')
  if not row[1] then
    return false, 'NO_LEASE'
  end
  if row[1] ~= epoch then
    return false, 'FENCED', row[1]
  end
  local beat_at, lease_ms = tonumber(row[2]) or 0, tonumber(row[3]) or 0
  return now - beat_at <= lease_ms and beat_at - now <= lease_ms, 'NO_LEASE'
end

local row = redis.call('HMGET', token, 'id', 'state', 'server', 'server_epoch', 'expires_at', 'reopened')
local state = row[2]
local here = row[1] == id
local live = now < (tonumber(row[5]) or 0)
if here and live and state == 'CLAIMED' and redis.call('HGET', token, 'claim_op') == claim_op then
  return { 'CLAIMED' }
end

local entries = {}
-- A zone that no operator ever touched has no entries, and to ask for that is cheaper than to read them.
if ARGV[7] ~= '' or ARGV[9] ~= '' or ARGV[11] ~= '' or redis.call('EXISTS', control) == 1 then
  entries = redis.call('HMGET', control, 'kill', 'kill:' .. claimant, 'kill:' .. server)
end
if (entries[1] or '') ~= ARGV[7] or (entries[2] or '') ~= ARGV[9] or (entries[3] or '') ~= ARGV[11] then
  return { 'CONTROL' }
end
if ARGV[8] == 'on' then
  return { 'KILLED', 'kill' }
end
if ARGV[10] == 'on' then
  return { 'KILLED', 'kill:' .. claimant }
end
if ARGV[12] == 'on' then
  return { 'KILLED', 'kill:' .. server }
end
if claimant_epoch ~= '0' then
  local held, why, current = alive(claimant_node, claimant_epoch)
  if not held then
    return { why, current }
  end
end
if not here then
  for old_id, ending in string.gmatch(redis.call('HGET', token, 'previous') or '',
    '([^ :]+):([^ :]+):[^ :]+:[^ :]+:%d+') do
    if old_id == id then
      return { 'ENDED', ending }
    end
  end
  return { 'NONE' }
end
if state ~= 'PENDING' and state ~= 'CLAIMED' then
  return { 'ENDED', state or '' }
end
if not live then
  return { 'EXPIRED' }
end
if state == 'CLAIMED' or (row[6] and string.find(row[6], claim_op, 1, true)) then
  return { 'LOST' }
end
if row[3] ~= server then
  return { 'NEED', row[3] or '' }
end
if not alive(server_node, row[4]) then
  return { 'SERVER_GONE' }
end

redis.call('HSET', token, 'state', 'CLAIMED', 'claimant', claimant, 'claimant_epoch', claimant_epoch,
  'claimed_at', now_text, 'claim_op', claim_op, 'claim_sig', ARGV[6])
return { 'CLAIMED' }
