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
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local token, claimant_node, server_node, control = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, server, claimant, claimant_epoch, claim_op = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

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
-- part kill
-- Whether other kill entries stand than those that the caller verified (R-32), and whether there are control entries at
-- all. A zone that no operator ever touched has none, and to ask for that is cheaper than to read them.
local function kill_changed(fleet_seen, first, first_seen, second, second_seen)
  if fleet_seen == '' and first_seen == '' and second_seen == '' and redis.call('EXISTS', control) == 0 then
    return false, false
  end
  local entries = redis.call('HMGET', control, 'kill', 'kill:' .. first, 'kill:' .. second)
  return (entries[1] or '') ~= fleet_seen or (entries[2] or '') ~= first_seen or (entries[3] or '') ~= second_seen, true
end
-- The kill switch that is on, by the verdicts of the caller.
local function killed_by(fleet_verdict, first, first_verdict, second, second_verdict)
  return fleet_verdict == 'on' and 'kill' or first_verdict == 'on' and 'kill:' .. first
    or second_verdict == 'on' and 'kill:' .. second or nil
end
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

local row = redis.call('HMGET', token, 'id', 'state', 'server', 'server_epoch', 'expires_at', 'reopened', 'issued_at')
local state = row[2]
local here = row[1] == id
local live = is_lasting(row[7], row[5])
if here and live and state == 'CLAIMED' and redis.call('HGET', token, 'claim_op') == claim_op then
  return { 'CLAIMED' }
end

if kill_changed(ARGV[7], claimant, ARGV[9], server, ARGV[11]) then
  return { 'CONTROL' }
end
local killed = killed_by(ARGV[8], claimant, ARGV[10], server, ARGV[12])
if killed then
  return { 'KILLED', killed }
end
if claimant_epoch ~= '0' then
  local held, why, current = alive(claimant_node, claimant_epoch)
  if not held then
    return { why, current }
  end
end
if not here then
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
  local ending = ended_as(redis.call('HGET', token, 'previous'), id)
  if ending then
    return { 'ENDED', ending }
  end
  return { 'NONE' }
end
if not is_open(state) then
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
