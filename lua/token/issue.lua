-- token/issue: writes a PENDING token for a player, or answers why there is none.
--
-- KEYS 1 token:<player>  hash
--      2 node:<server>   hash, the issuer's row
--      3 due:<server>    zset, player -> next time someone must look
--      4 due             set, the servers that have a due: set
--      5 control         hash, kill switch entries
--      then a pair for each server of ARGV 20..: node:<other>, due:<other>
-- ARGV 1 id, 2 player, 3 server, 4 server_epoch, 5 request, 6 attempt, 7 payload (JSON), 8 issued_at (store ms),
--      9 expires_at (store ms), 10 v, 11 sig, 12 deadline (store ms), 13 claimReanimateMs, 14 auditMs, 15 channel,
--      16 bytes of control kill as last seen (empty for none), 17 its verdict (on or off),
--      18 bytes of control kill:<server>, 19 its verdict, 20.. other servers (0 to 16)
-- Answers ISSUED           the token is PENDING
--         TAKEN            a live token of the player exists: read it
--         ENDED <end>      this very token was issued before and has ended
--         ATTEMPT          the request is at this attempt or beyond
--         CANCELLED        the request was cancelled
--         LATE             the attempt's deadline is over
--         KILLED <entry>   a kill switch is on
--         CONTROL          other control entries stand than those passed: read, verify, repeat
--         NO_LEASE         the issuer's row is gone or too old
--         FENCED <epoch>   the issuer's epoch is over
--         SKEW <now>       issued_at is off by more than 5 s
--         NEED <server>    the keys of that server have to be passed
-- Events  ended <player> <id> <server> <end> for a token that this one replaces
-- Bound   one row.
-- Repeat  the same id gives the same answer while its token is the row or among the last four ended.
-- Example EVALSHA <sha> 5 maitred:{eu}:token:alice maitred:{eu}:node:b1 maitred:{eu}:due:b1 maitred:{eu}:due
--         maitred:{eu}:control t1 alice b1 1796000000000 r1 1 {} 1796000001000 1796000031000 1 5ebd00f2.xxx
--         1796000002500 5000 60000 maitred:{eu}:events:token "" off "" off
local others = #ARGV - 19
if others < 0 or others > 16 or #KEYS ~= 5 + 2 * others then
  return redis.error_reply('ARITY token/issue takes 5 keys and 19 arguments, and two keys and a name for each other server')
end
local token, node, due, servers, control = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, player, server, server_epoch, request = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local attempt, issued_at, expires_at, deadline =
  tonumber(ARGV[6]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[12])
local reanimate_ms, audit_ms, channel = tonumber(ARGV[13]), tonumber(ARGV[14]), ARGV[15]
if not (attempt and issued_at and expires_at and deadline and reanimate_ms and audit_ms) then
  return redis.error_reply('ARGUMENT token/issue: attempt, times and spans are whole numbers')
end

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

local row = {}
-- Most players have no row, and ten fields of nothing cost three times what this question does.
if redis.call('EXISTS', token) == 1 then
  row = redis.call('HMGET', token, 'id', 'state', 'server', 'server_epoch', 'request', 'attempt', 'expires_at',
    'previous', 'cancelled', 'consume_op', 'reason')
end
local row_id, state, row_server, row_request = row[1], row[2], row[3], row[5]
local row_attempt, previous, cancelled = tonumber(row[6] or '') or 0, row[8] or '', row[9] or ''
local open = row_id and (state == 'PENDING' or state == 'CLAIMED')
local live = open and now < (tonumber(row[7] or '') or 0)
if row_id == id then
  if live then
    return { 'ISSUED' }
  end
  return { 'ENDED', open and 'EXPIRED' or state or '' }
end
local seen_attempt = 0
if previous ~= '' then
  for old_id, ending, old_request, old_attempt in string.gmatch(previous, '([^ :]+):([^ :]+):[^ :]+:([^ :]+):(%d+)') do
    if old_id == id then
      return { 'ENDED', ending }
    end
    if old_request == request and tonumber(old_attempt) > seen_attempt then
      seen_attempt = tonumber(old_attempt)
    end
  end
end

local entries = {}
-- A zone that no operator ever touched has no entries, and to ask for that is cheaper than to read them.
if ARGV[16] ~= '' or ARGV[18] ~= '' or redis.call('EXISTS', control) == 1 then
  entries = redis.call('HMGET', control, 'kill', 'kill:' .. server)
end
if (entries[1] or '') ~= ARGV[16] or (entries[2] or '') ~= ARGV[18] then
  return { 'CONTROL' }
end
if ARGV[17] == 'on' then
  return { 'KILLED', 'kill' }
end
if ARGV[19] == 'on' then
  return { 'KILLED', 'kill:' .. server }
end
local held, why, current = alive(node, server_epoch)
if not held then
  return { why, current }
end
if math.abs(issued_at - now) > 5000 then
  return { 'SKEW', now_text }
end
if now >= deadline or now >= expires_at then
  return { 'LATE' }
end
if cancelled ~= '' then
  for mark in string.gmatch(cancelled, '([^ @]+)@') do
    if mark == request then
      return { 'CANCELLED' }
    end
  end
end

local old_due = due
local ending
if open then
  local gone = row[4] ~= server_epoch
  if row_server ~= server then
    local other
    for i = 1, others do
      if ARGV[19 + i] == row_server then
        other = i
      end
    end
    if not other then
      return { 'NEED', row_server or '' }
    end
    old_due = KEYS[5 + 2 * other]
    gone = not alive(KEYS[4 + 2 * other], row[4])
  end
  if not live then
    ending = 'EXPIRED'
  elseif gone then
    ending = 'SERVER_GONE'
  elseif state == 'PENDING' and row_request == request and attempt > row_attempt then
    ending = 'SUPERSEDED'
  else
    return { 'TAKEN' }
  end
elseif row_id then
  ending = string.match(state or '', '^[%u_]+$') or 'UNKNOWN'
end
if row_request == request and row_attempt > seen_attempt then
  seen_attempt = row_attempt
end
if attempt <= seen_attempt then
  return { 'ATTEMPT' }
end

if row_id or cancelled ~= '' then
  if row_id then
    local op = row[10] or (ending == 'RELEASED' and row[11] == 'cancelled' and 'cancelled') or '-'
    local kept = { string.format('%s:%s:%s:%s:%.0f', row_id, ending, op, row_request or '-', row_attempt) }
    for entry in string.gmatch(previous, '[^ ]+') do
      if #kept < 4 then
        kept[#kept + 1] = entry
      end
    end
    previous = table.concat(kept, ' ')
  end
  redis.call('DEL', token)
  if previous ~= '' then
    redis.call('HSET', token, 'previous', previous)
  end
  if cancelled ~= '' then
    redis.call('HSET', token, 'cancelled', cancelled)
  end
  if open and old_due ~= due then
    redis.call('ZREM', old_due, player)
    if redis.call('EXISTS', old_due) == 0 then
      redis.call('SREM', servers, row_server)
    end
  end
  if open then
    redis.call('PUBLISH', channel, 'ended ' .. player .. ' ' .. row_id .. ' ' .. row_server .. ' ' .. ending)
  end
end
redis.call('ZADD', due, math.min(expires_at, now + reanimate_ms), player)
redis.call('SADD', servers, server)
redis.call('HSET', token, 'id', id, 'state', 'PENDING', 'player', player, 'server', server,
  'server_epoch', server_epoch, 'request', request, 'attempt', ARGV[6], 'payload', ARGV[7], 'issued_at', ARGV[8],
  'expires_at', ARGV[9], 'v', ARGV[10], 'sig', ARGV[11])
redis.call('PEXPIREAT', token, expires_at + audit_ms)
return { 'ISSUED' }
