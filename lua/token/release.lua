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
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local token, due, servers = KEYS[1], KEYS[2], KEYS[3]
local id, player, server, by, name, epoch = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local claim_op, reason, audit_ms, channel = ARGV[7], ARGV[8], whole(ARGV[9]), ARGV[10]
if not audit_ms then
  return redis.error_reply('ARGUMENT token/release: auditMs is a whole number')
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
-- part ended
-- How a token that is no longer the row ended, and by which operation.
local function ended_as(entries, token_id)
  for old_id, ending, op in string.gmatch(entries or '', previous_entry) do
    if old_id == token_id then
      return ending, op
    end
  end
end
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

local row = redis.call('HMGET', token, 'id', 'state', 'server', 'server_epoch', 'claimant', 'claimant_epoch',
  'previous', 'expires_at', 'claim_op', 'issued_at')
local state = row[2]
if row[1] ~= id then
  state = ended_as(row[7], id)
  if not state then
    return { 'NONE' }
  end
end
if state == 'CONSUMED' then
  return { 'LANDED' }
end
if state == 'RELEASED' then
  return { 'RELEASED' }
end
if row[1] ~= id or not is_open(state) then
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
if not is_lasting(row[10], row[8]) then
  ending = 'EXPIRED'
end
redis.call('ZREM', due, player)
redis.call('HSET', token, 'state', ending, 'reason', reason)
redis.call('PEXPIRE', token, string.format('%.0f', audit_ms))
unlist_empty(due, servers, server)
redis.call('PUBLISH', channel, 'ended ' .. player .. ' ' .. id .. ' ' .. server .. ' ' .. ending)
if ending == 'EXPIRED' then
  return { 'ENDED', ending }
end
return { 'RELEASED' }
