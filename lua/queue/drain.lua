-- queue/drain: turns a ticket of a wait line into a PENDING token of the caller, in one step.
--
-- KEYS 1 lines                  set, the lines that hold tickets or whose last one a sweep has not followed yet
--      2 line:<line>            zset, player -> lane * 2^42 + sequence
--      3 tickets:<line>         hash, player -> ticket
--      4 away:<line>            zset, player -> when the place goes
--      5 vias:<line>            set, the holders that have a via: set
--      6 via:<line>:<holder>    set, of ARGV 3
--      7 node:<holder>          hash, the row of the proxy that holds the ticket
--      8 token:<player>         hash
--      9 node:<server>          hash, the caller's row
--      10 due:<server>          zset, player -> next time someone must look
--      11 due                   set, the servers that have a due: set
--      12 control               hash, kill switch entries
--      13 node:<other>          hash, of ARGV 16 (KEYS 9 where there is none)
--      14 due:<other>           zset, of ARGV 16 (KEYS 10 where there is none)
-- ARGV 1 line, 2 player, 3 holder (<proxy>:<epoch>), 4 ticket as read, 5 id, 6 server, 7 server_epoch, 8 request,
--      9 attempt, 10 payload (JSON), 11 issued_at (store ms), 12 expires_at (store ms), 13 v, 14 sig, 15 forged (1: the
--      ticket did not verify, evict it), 16 server of the player's live token as last seen (empty for none), 17 graceMs,
--      18 claimReanimateMs, 19 auditMs, 20 line channel, 21 token channel, 22 bytes of control kill as last seen, 23 its
--      verdict, 24 bytes of control kill:<server>, 25 its verdict
-- Answers DRAINED <expires_at>  the ticket is gone, the token is PENDING until then (store ms; also for a repeat, which
--                          may offer another time)
--         GONE             the ticket is not the one that was read, or does not wait
--         AWAY             its holder is gone: the place is kept for graceMs
--         EVICTED          it was forged
--         TAKEN            the player has a live token: the ticket is gone, the caller keeps its place
--         CANCELLED        the request was cancelled: the ticket is gone, the caller keeps its place
--         ENDED            this token was issued before and has ended
--         KILLED <entry>   a kill switch is on
--         CONTROL          other control entries stand than those passed: read, verify, repeat
--         NO_LEASE         the caller's row is gone or too old
--         FENCED <epoch>   the caller's epoch is over
--         SKEW <now>       issued_at is off by more than 5 s
--         NEED <server>    the keys of that server have to be passed
-- Events  drained <line> <player> <id> <server>, left <line> <player>, ended <player> <id> <server> <end>
-- Bound   one player.
-- Repeat  the same id is answered DRAINED while its token is open.
-- Example EVALSHA <sha> 14 maitred:{eu}:lines maitred:{eu}:line:wait maitred:{eu}:tickets:wait maitred:{eu}:away:wait
--         maitred:{eu}:vias:wait maitred:{eu}:via:wait:p1:1796000000000 maitred:{eu}:node:p1 maitred:{eu}:token:alice
--         maitred:{eu}:node:b1 maitred:{eu}:due:b1 maitred:{eu}:due maitred:{eu}:control maitred:{eu}:node:b1
--         maitred:{eu}:due:b1 wait alice p1:1796000000000 "1796000000001 0 p1 1796000000000 s1 1796000000000 1 5ebd00f2.xxx r1"
--         t1 b1 1796000000000 r1 1000 {} 1796000001000 1796000031000 1 5ebd00f2.xxx 0 "" 30000 5000 60000
--         maitred:{eu}:events:line maitred:{eu}:events:token "" off "" off
if #KEYS ~= 14 or #ARGV ~= 25 then
  return redis.error_reply('ARITY queue/drain takes 14 keys and 25 arguments')
end
local lines, line, tickets, away, vias, via = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local holder_node, token, node, due, servers, control = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local other_node, other_due = KEYS[13], KEYS[14]
local name, player, holder, id, server, server_epoch = ARGV[1], ARGV[2], ARGV[3], ARGV[5], ARGV[6], ARGV[7]
local request, attempt, issued_at, expires_at = ARGV[8], tonumber(ARGV[9]), tonumber(ARGV[11]), tonumber(ARGV[12])
local grace_ms, reanimate_ms, audit_ms = tonumber(ARGV[17]), tonumber(ARGV[18]), tonumber(ARGV[19])
if not (attempt and issued_at and expires_at and grace_ms and reanimate_ms and audit_ms) then
  return redis.error_reply('ARGUMENT queue/drain: attempt, times and spans are whole numbers')
end

local time = redis.call('TIME')
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

local row = redis.call('HMGET', token, 'id', 'state', 'server', 'server_epoch', 'request', 'attempt', 'expires_at',
  'previous', 'cancelled', 'consume_op', 'reason')
local state, row_server, previous, cancelled = row[2], row[3], row[8] or '', row[9] or ''
local open = row[1] and (state == 'PENDING' or state == 'CLAIMED')
local live = open and now < (tonumber(row[7] or '') or 0)
if row[1] == id then
  if live then
    return { 'DRAINED', row[7] }
  end
  return { 'ENDED' }
end
for old_id in string.gmatch(previous, '([^ :]+):[^ ]+') do
  if old_id == id then
    return { 'ENDED' }
  end
end
local held, why, current = alive(node, server_epoch)
if not held then
  return { why, current }
end
local entries = {}
if ARGV[22] ~= '' or ARGV[24] ~= '' or redis.call('EXISTS', control) == 1 then
  entries = redis.call('HMGET', control, 'kill', 'kill:' .. server)
end
if (entries[1] or '') ~= ARGV[22] or (entries[2] or '') ~= ARGV[24] then
  return { 'CONTROL' }
end
if ARGV[23] == 'on' then
  return { 'KILLED', 'kill' }
end
if ARGV[25] == 'on' then
  return { 'KILLED', 'kill:' .. server }
end
if math.abs(issued_at - now) > 5000 or now >= expires_at then
  return { 'SKEW', now_text }
end
local score = redis.call('ZSCORE', line, player)
if not score or (redis.call('HGET', tickets, player) or '') ~= ARGV[4] then
  return { 'GONE' }
end
-- Looked at before anything is written, so that a key of another type changes nothing.
redis.call('SCARD', via)
redis.call('ZCARD', away)
redis.call('ZCARD', due)
local word = 'DRAINED'
if ARGV[15] == '1' or ARGV[4] == '' then
  word = 'EVICTED'
elseif not alive(holder_node, string.match(holder, ':(%d+)$')) then
  word = 'AWAY'
end
for mark in string.gmatch(cancelled, '([^ @]+)@') do
  if mark == request and word == 'DRAINED' then
    word = 'CANCELLED'
  end
end
local old_due, ending = due, nil
if row[1] then
  ending = string.match(state or '', '^[%u_]+$') or 'UNKNOWN'
end
if word == 'DRAINED' and open then
  local gone = row[4] ~= server_epoch
  if row_server ~= server then
    if row_server ~= ARGV[16] then
      return { 'NEED', row_server or '' }
    end
    redis.call('ZCARD', other_due)
    old_due = other_due
    gone = not alive(other_node, row[4])
  end
  ending = gone and 'SERVER_GONE' or 'EXPIRED'
  if live and not gone then
    word = 'TAKEN'
  end
end

redis.call('ZREM', line, player)
redis.call('SREM', via, player)
if redis.call('EXISTS', via) == 0 then
  redis.call('SREM', vias, holder)
end
if word == 'AWAY' then
  redis.call('ZADD', away, string.format('%.0f', now + grace_ms), player)
  return { word }
end
redis.call('HDEL', tickets, player)
if redis.call('EXISTS', tickets) == 0 then
  -- Stays listed until a sweep takes the gate away too: nobody's config names a wait line.
  redis.call('SADD', lines, name)
end
if word ~= 'DRAINED' then
  redis.call('PUBLISH', ARGV[20], 'left ' .. name .. ' ' .. player)
  return { word }
end
if row[1] or cancelled ~= '' then
  if row[1] then
    local op = row[10] or (ending == 'RELEASED' and row[11] == 'cancelled' and 'cancelled') or '-'
    local kept = { string.format('%s:%s:%s:%s:%.0f', row[1], ending, op, row[5] or '-', tonumber(row[6] or '') or 0) }
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
    redis.call('PUBLISH', ARGV[21], 'ended ' .. player .. ' ' .. row[1] .. ' ' .. row_server .. ' ' .. ending)
  end
end
redis.call('ZADD', due, string.format('%.0f', math.min(expires_at, now + reanimate_ms)), player)
redis.call('SADD', servers, server)
redis.call('HSET', token, 'id', id, 'state', 'PENDING', 'player', player, 'server', server, 'server_epoch', server_epoch,
  'request', request, 'attempt', ARGV[9], 'payload', ARGV[10], 'issued_at', ARGV[11], 'expires_at', ARGV[12], 'v',
  ARGV[13], 'sig', ARGV[14])
redis.call('PEXPIREAT', token, string.format('%.0f', expires_at + audit_ms))
redis.call('PUBLISH', ARGV[20], 'drained ' .. name .. ' ' .. player .. ' ' .. id .. ' ' .. server)
return { 'DRAINED', ARGV[12] }
