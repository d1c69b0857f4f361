-- token/consume: CLAIMED, or PENDING that was claimed before, -> CONSUMED, exactly once, by the server that issued it.
--
-- KEYS 1 token:<player>  hash
--      2 node:<server>   hash, the server's row
--      3 due:<server>    zset, player -> next time someone must look
--      4 due             set, the servers that have a due: set
--      5 held:<server>   zset, players promised or arrived whom the server's own count does not include yet
-- ARGV 1 id, 2 player, 3 server, 4 server_epoch, 5 consume_op, 6 auditMs, 7 arriveMs (0: the server counts no places)
-- Answers CONSUMED [until claim]  the player has the place (also for a repeat of the same consume_op); until when it is held
--                          (store ms) and as what, where ARGV 7 is not 0 and the row still tells
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
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local token, node, due, servers, held = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, player, server, server_epoch, consume_op, audit_ms =
  ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local arrive_ms = whole(ARGV[7])
if not (whole(audit_ms) and arrive_ms) then
  return redis.error_reply('ARGUMENT token/consume: auditMs and arriveMs are whole numbers')
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

local row = redis.call('HMGET', token, 'id', 'state', 'server', 'server_epoch', 'expires_at', 'issued_at')
local state = row[2]
local here = row[1] == id
local ending, op, claim, consumed_at
if arrive_ms > 0 then
  -- part claim
  -- Who holds a place (R-40): the player, what the place was promised by, how long it lasts in ms, blanks between. A build
  -- that does not know this names the player alone, and leaves no such time behind.
  local function claim_of(player, promised_by, lasts)
    return lasts and player .. ' ' .. promised_by .. ' ' .. lasts or player
  end
  -- end part
  claim = claim_of(player, id, string.format('%.0f', arrive_ms))
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
  ending, op = ended_as(redis.call('HGET', token, 'previous'), id)
elseif not is_open(state) then
  local over = redis.call('HMGET', token, 'consume_op', 'consumed_at')
  ending, op, consumed_at = state or '', over[1], whole(over[2])
end
if ending == 'CONSUMED' and op == consume_op then
  if arrive_ms == 0 or not consumed_at then
    return { 'CONSUMED' }
  end
  return { 'CONSUMED', string.format('%.0f', consumed_at + arrive_ms), claim }
end

local living, why, current = alive(node, server_epoch)
if not living then
  return { why, current }
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
if not is_lasting(row[6], row[5]) then
  return { 'EXPIRED' }
end
if state == 'PENDING' and not redis.call('HGET', token, 'last_claim_op') then
  return { 'NOT_CLAIMED' }
end

if arrive_ms > 0 then
  -- Looked at before anything is written, so that a key of another type changes nothing.
  redis.call('ZCARD', held)
end
redis.call('ZREM', due, player)
local place_goes
if arrive_ms > 0 then
  -- The place goes from one set that counts it to the other.
  -- part hold
  -- Holds a place. Promises of another line may last longer than this one's.
  local function hold(held_key, claim, place_goes)
    redis.call('ZADD', held_key, place_goes, claim)
    if redis.call('PTTL', held_key) < arrive_ms then
      redis.call('PEXPIRE', held_key, string.format('%.0f', arrive_ms))
    end
  end
  -- end part
  place_goes = string.format('%.0f', now + arrive_ms)
  hold(held, claim, place_goes)
end
redis.call('HSET', token, 'state', 'CONSUMED', 'consume_op', consume_op, 'consumed_at', now_text)
redis.call('PEXPIRE', token, audit_ms)
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
unlist_empty(due, servers, server)
return { 'CONSUMED', place_goes, claim }
