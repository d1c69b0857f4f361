-- token/release: ends a token that nobody will use, with a reason, so that its place goes back.
--
-- KEYS 1 token:<player>  hash
--      2 due:<server>    zset of the token's server, player -> next time someone must look
--      3 due             set, the servers that have a due: set
-- ARGV 1 id, 2 player, 3 server (behind KEYS 2), 4 by (claimant, server or operator), 5 node id of who releases,
--      6 its epoch, 7 claim_op of the claim that a claimant gives up (empty for any of its
--      own, and for others), 8 reason (a word), 9 auditMs,
--      10 channel
-- Answers RELEASED         the token is RELEASED (also when it was before)
--         LOST             a claimant that does not hold it now, or a server that did not issue it
--         LANDED           the token was consumed
--         ENDED <end>      the token has ended another way
--         NONE             there is no such token
--         NEED <server>    the due: set of that server has to be in KEYS 2
-- Events  ended <player> <id> <server> RELEASED
-- Bound   one row.
-- Repeat  a token that is RELEASED already is answered RELEASED.
-- Example EVALSHA <sha> 3 maitred:{eu}:token:alice maitred:{eu}:due:b1 maitred:{eu}:due
--         t1 alice b1 operator cli 0 "" asked 60000 maitred:{eu}:events:token
if #KEYS ~= 3 or #ARGV ~= 10 then
  return redis.error_reply('ARITY token/release takes 3 keys and 10 arguments')
end
local token, due, servers = KEYS[1], KEYS[2], KEYS[3]
local id, player, server, by, name, epoch = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local claim_op, reason, audit_ms, channel = ARGV[7], ARGV[8], tonumber(ARGV[9]), ARGV[10]
if not audit_ms then
  return redis.error_reply('ARGUMENT token/release: auditMs is a whole number')
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local row = redis.call('HMGET', token, 'id', 'state', 'server', 'server_epoch', 'claimant', 'claimant_epoch',
  'previous', 'expires_at', 'claim_op')
local state = row[2]
if row[1] ~= id then
  for old_id, ending in string.gmatch(row[7] or '', '([^ :]+):([^ :]+):[^ :]+:[^ :]+:%d+') do
    if old_id == id then
      if ending == 'CONSUMED' then
        return { 'LANDED' }
      end
      if ending == 'RELEASED' then
        return { 'RELEASED' }
      end
      return { 'ENDED', ending }
    end
  end
  return { 'NONE' }
end
if state == 'CONSUMED' then
  return { 'LANDED' }
end
if state == 'RELEASED' then
  return { 'RELEASED' }
end
if state ~= 'PENDING' and state ~= 'CLAIMED' then
  return { 'ENDED', state or '' }
end
local allowed = by == 'operator'
  or (by == 'server' and row[3] == name and row[4] == epoch)
  or (by == 'claimant' and state == 'CLAIMED' and row[5] == name and row[6] == epoch
    and (claim_op == '' or row[9] == claim_op))
if not allowed then
  return { 'LOST' }
end
if row[3] ~= server then
  return { 'NEED', row[3] or '' }
end

local ending = 'RELEASED'
if now >= (tonumber(row[8] or '') or 0) then
  ending = 'EXPIRED'
end
redis.call('ZREM', due, player)
redis.call('HSET', token, 'state', ending, 'reason', reason)
redis.call('PEXPIRE', token, string.format('%.0f', audit_ms))
if redis.call('EXISTS', due) == 0 then
  redis.call('SREM', servers, server)
end
redis.call('PUBLISH', channel, 'ended ' .. player .. ' ' .. id .. ' ' .. server .. ' ' .. ending)
if ending == 'EXPIRED' then
  return { 'ENDED', ending }
end
return { 'RELEASED' }
