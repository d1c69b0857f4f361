-- token/cancel: leaves a mark that a later issue of the request meets, and ends a live token of that request.
--
-- KEYS 1 token:<player>  hash
--      2 due             set, the servers that have a due: set
--      3.. due:<server>  zset, one for each server of ARGV 8..
-- ARGV 1 player, 2 request, 3 node id of who cancels, 4 its epoch, 5 claim_op of the claim that is given up
--      (empty for any of its own),
--      6 auditMs, 7 channel, 8.. servers (0 to 16)
-- Answers CANCELLED              marked; no live token of the request was there
--         RELEASED <id> <server> marked; that token was ended (server -: by an earlier call, behind a later token)
--         LOST                   marked; another claim holds the token
--         LANDED                 marked; the token of the request was consumed
--         NEED <server>          the due: set of that server has to be passed
-- Events  ended <player> <id> <server> RELEASED
-- Bound   one row; the last four marks are kept.
-- Repeat  a request that is marked already keeps its mark; a token that it ended is answered RELEASED while that is the
--         row or among the last four ended.
-- Example EVALSHA <sha> 3 maitred:{eu}:token:alice maitred:{eu}:due maitred:{eu}:due:b1
--         alice r1 p1 1796000000000 "" 60000 maitred:{eu}:events:token b1
local count = #ARGV - 7
if count < 0 or count > 16 or #KEYS ~= count + 2 then
  return redis.error_reply('ARITY token/cancel takes 2 keys and 7 arguments, and one of each for up to 16 servers')
end
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local token, servers = KEYS[1], KEYS[2]
local player, request, name, epoch = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local claim_op, audit_ms, channel = ARGV[5], whole(ARGV[6]), ARGV[7]
if not audit_ms then
  return redis.error_reply('ARGUMENT token/cancel: auditMs is a whole number')
end

-- part time
local time = redis.call('TIME')
-- Milliseconds cut out as text: cheaper than arithmetic and %.0f, and the same digits on every Lua.
local now_text = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now = tonumber(now_text)
-- end part
-- part lasting
-- Whether the time of a token is still to come. One that was issued later than now is from before the clock stepped back, and
-- over (R-34); without its times it has none.
local function is_lasting(issued, expires)
  local from, till = whole(issued), whole(expires)
  return from and till and now < till and from - now <= 10000
end
-- end part
-- part open
-- Whether a token in that state has not ended; its time may be over all the same.
local function is_open(token_state)
  return token_state == 'PENDING' or token_state == 'CLAIMED'
end
-- end part
-- part previous
-- One of the last four tokens that a player's row keeps: <id>:<ending>:<operation>:<request>:<attempt>.
local previous_entry = '([^ :]+):([^ :]+):([^ :]+):([^ :]+):(%d+)'
-- end part
-- part index
-- An index names the sets that hold something: takes one that is empty out of it. An index of another type stays as it is:
-- whoever calls this has written before, and must not end in the middle. True where the set is empty.
local function unlist_empty(set_key, index_key, entry)
  if redis.call('EXISTS', set_key) == 0 then
    local taken = redis.pcall('SREM', index_key, entry)
    if type(taken) == 'table' and not string.find(taken.err or '', 'WRONGTYPE', 1, true) then
      redis.call('SREM', index_key, entry)
    end
    return true
  end
  return false
end
-- end part

local row = redis.call('HMGET', token, 'id', 'state', 'server', 'request', 'claimant', 'claimant_epoch', 'expires_at',
  'cancelled', 'reason', 'previous', 'claim_op', 'issued_at')
local id, state, server = row[1], row[2], row[3]
local ours = id and row[4] == request
local answer = 'CANCELLED'
local due
if ours and state == 'CONSUMED' then
  answer = 'LANDED'
elseif ours and state == 'RELEASED' and row[9] == 'cancelled' then
  answer = 'RELEASED'
elseif ours and is_open(state) and is_lasting(row[12], row[7]) then
  if state == 'CLAIMED' and (row[5] ~= name or row[6] ~= epoch or (claim_op ~= '' and row[11] ~= claim_op)) then
    answer = 'LOST'
  else
    answer = 'RELEASED'
    for i = 1, count do
      if ARGV[7 + i] == server then
        due = KEYS[2 + i]
      end
    end
    if not due then
      return { 'NEED', server or '' }
    end
  end
elseif not ours then
  for old_id, ending, op, old_request in string.gmatch(row[10] or '', previous_entry) do
    if old_request == request and ending == 'CONSUMED' then
      answer = 'LANDED'
    elseif old_request == request and op == 'cancelled' and answer ~= 'LANDED' then
      answer, id, server = 'RELEASED', old_id, '-'
    end
  end
end
local marks = { request .. '@' .. now_text }
for mark, at in string.gmatch(row[8] or '', '([^ @]+)@(%d+)') do
  if mark ~= request and #marks < 4 and math.abs(now - tonumber(at)) < audit_ms then
    marks[#marks + 1] = mark .. '@' .. at
  end
end

if due then
  redis.call('ZREM', due, player)
end
redis.call('HSET', token, 'cancelled', table.concat(marks, ' '))
if due then
  redis.call('HSET', token, 'state', 'RELEASED', 'reason', 'cancelled')
  unlist_empty(due, servers, server)
  redis.call('PUBLISH', channel, 'ended ' .. player .. ' ' .. id .. ' ' .. server .. ' RELEASED')
end
if due or redis.call('PTTL', token) < audit_ms then
  redis.call('PEXPIRE', token, string.format('%.0f', audit_ms))
end
if answer == 'RELEASED' then
  return { answer, id, server }
end
return { answer }
