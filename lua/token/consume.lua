-- token/consume: CLAIMED, or PENDING that was claimed before, -> CONSUMED, exactly once, by the server that issued it.
--
-- KEYS 1 token:<player>  hash
--      2 node:<server>   hash, the server's row
--      3 due:<server>    zset, player -> next time someone must look
--      4 due             set, the servers that have a due: set
--      5 held:<server>   zset, players promised or arrived whom the server's own count does not include yet
-- ARGV 1 id, 2 player, 3 server, 4 server_epoch, 5 consume_op, 6 auditMs, 7 arriveMs (0: the server counts no places)
-- Answers CONSUMED [until]  the player has the place (also for a repeat of the same consume_op); until when it is held
--                          (store ms), where ARGV 7 is not 0 and the row still tells
--         REPLAY           the token was consumed by another operation
--         NOT_CLAIMED      no proxy ever claimed it
--         EXPIRED          its time is over
--         ENDED <end>      the token has ended
--         NOT_YOURS        the token is of another server, or of another epoch of it
--         NONE             there is no such token
--         NO_LEASE         the server's row is gone or too old
--         FENCED <epoch>   the server's epoch is over
-- Events  none
-- Bound   one row.
-- Repeat  the same consume_op is answered CONSUMED while the row stands or is among the last four ended.
-- Example EVALSHA <sha> 5 maitred:{eu}:token:alice maitred:{eu}:node:b1 maitred:{eu}:due:b1 maitred:{eu}:due
--         maitred:{eu}:held:b1 t1 alice b1 1796000000000 op2 60000 60000
if #KEYS ~= 5 or #ARGV ~= 7 then
  return redis.error_reply('ARITY token/consume takes 5 keys and 7 arguments')
end
local token, node, due, servers, held = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, player, server, server_epoch, consume_op, audit_ms =
  ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local arrive_ms = tonumber(ARGV[7])
if not (tonumber(audit_ms) and arrive_ms) then
  return redis.error_reply('ARGUMENT token/consume: auditMs and arriveMs are whole numbers')
end

local time = redis.call('TIME')
-- Milliseconds cut out as text: cheaper than arithmetic and %.0f, and the same digits on every Lua.
local now_text = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now = tonumber(now_text)
local row = redis.call('HMGET', token, 'id', 'state', 'server', 'server_epoch', 'expires_at')
local state = row[2]
local here = row[1] == id
local ending, op, consumed_at
if here then
  if state ~= 'PENDING' and state ~= 'CLAIMED' then
    local over = redis.call('HMGET', token, 'consume_op', 'consumed_at')
    ending, op, consumed_at = state or '', over[1], tonumber(over[2] or '')
  end
else
  for old_id, old_ending, old_op in string.gmatch(redis.call('HGET', token, 'previous') or '',
    '([^ :]+):([^ :]+):([^ :]+):[^ :]+:%d+') do
    if old_id == id then
      ending, op = old_ending, old_op
    end
  end
end
if ending == 'CONSUMED' and op == consume_op then
  if arrive_ms == 0 or not consumed_at then
    return { 'CONSUMED' }
  end
  return { 'CONSUMED', string.format('%.0f', consumed_at + arrive_ms) }
end

local mine = redis.call('HMGET', node, 'epoch', 'beat_at', 'lease_ms')
if mine[1] and mine[1] ~= server_epoch then
  return { 'FENCED', mine[1] }
end
local beat_at, lease_ms = tonumber(mine[2]) or 0, tonumber(mine[3]) or 0
if not mine[1] or now - beat_at > lease_ms or beat_at - now > lease_ms then
  return { 'NO_LEASE' }
end
if ending == 'CONSUMED' then
  return { 'REPLAY' }
end
if ending then
  return { 'ENDED', ending }
end
if not here then
  return { 'NONE' }
end
if row[3] ~= server or row[4] ~= server_epoch then
  return { 'NOT_YOURS' }
end
if now >= (tonumber(row[5]) or 0) then
  return { 'EXPIRED' }
end
if state == 'PENDING' and not redis.call('HGET', token, 'last_claim_op') then
  return { 'NOT_CLAIMED' }
end

local place_goes = string.format('%.0f', now + arrive_ms)
local lasts = 0
if arrive_ms > 0 then
  redis.call('ZCARD', held)
  lasts = redis.call('PTTL', held)
end
redis.call('ZREM', due, player)
if arrive_ms > 0 then
  -- The place goes from one set that counts it to the other.
  redis.call('ZADD', held, place_goes, player)
  -- Promises of a login line may last longer.
  if lasts < arrive_ms then
    redis.call('PEXPIRE', held, ARGV[7])
  end
end
redis.call('HSET', token, 'state', 'CONSUMED', 'consume_op', consume_op, 'consumed_at', now_text)
redis.call('PEXPIRE', token, audit_ms)
if redis.call('EXISTS', due) == 0 then
  redis.call('SREM', servers, server)
end
if arrive_ms == 0 then
  return { 'CONSUMED' }
end
return { 'CONSUMED', place_goes }
