-- token/issue: writes a PENDING token for a player, or answers why there is none.
--
-- KEYS 1 token:<player>  hash
--      2 node:<server>   hash, the issuer's row
--      3 due:<server>    zset, player -> next time someone must look
--      4 due             set, the servers that have a due: set
--      5 control         hash, kill switch entries
--      6 held:<server>   zset, places promised or taken whose players the issuer's count does not include yet
--      then a pair for each server of ARGV 21..: node:<other>, due:<other>
-- ARGV 1 id, 2 player, 3 server, 4 server_epoch, 5 request, 6 attempt, 7 payload (JSON), 8 issued_at (store ms),
--      9 expires_at (store ms), 10 v, 11 sig, 12 deadline (store ms), 13 claimReanimateMs, 14 auditMs, 15 channel,
--      16 bytes of control kill as last seen (empty for none), 17 its verdict (on or off),
--      18 bytes of control kill:<server>, 19 its verdict, 20 arriveMs of the lines that lead to the server (0: none does, and
--      its places are not counted here), 21.. other servers (0 to 16)
-- Answers ISSUED           the token is PENDING
--         TAKEN            a live token of the player exists: read it
--         ENDED <end>      this very token was issued before and has ended
--         ATTEMPT          the request is at this attempt or beyond
--         CANCELLED        the request was cancelled
--         LATE             the attempt's deadline is over
--         NO_PLACE         lines and tokens have promised all places of the server
--         KILLED <entry>   a kill switch is on
--         CONTROL          other control entries stand than those passed: read, verify, repeat
--         NO_LEASE         the issuer's row is gone or too old
--         FENCED <epoch>   the issuer's epoch is over
--         SKEW <now>       issued_at is off by more than 5 s
--         NEED <server>    the keys of that server have to be passed
-- Events  ended <player> <id> <server> <end> for a token that this one replaces
-- Bound   one row.
-- Repeat  the same id gives the same answer while its token is the row or among the last four ended.
-- Example EVALSHA <sha> 6 maitred:{eu}:token:alice maitred:{eu}:node:b1 maitred:{eu}:due:b1 maitred:{eu}:due
--         maitred:{eu}:control maitred:{eu}:held:b1 t1 alice b1 1796000000000 r1 1 {} 1796000001000 1796000031000 1 5ebd00f2.xxx
--         1796000002500 5000 60000 maitred:{eu}:events:token "" off "" off 0
local others = #ARGV - 20
if others < 0 or others > 16 or #KEYS ~= 6 + 2 * others then
  return redis.error_reply('ARITY token/issue takes 6 keys and 20 arguments, and two keys and a name for each other server')
end
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local token, node, due, servers, control, places_held = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local id, player, server, server_epoch, request = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
-- One pattern for all of them costs less than a call of `whole` for each.
local numbers = ARGV[6] .. ' ' .. ARGV[8] .. ' ' .. ARGV[9] .. ' ' .. ARGV[12] .. ' ' .. ARGV[13] .. ' ' .. ARGV[14]
  .. ' ' .. ARGV[20]
if not string.find(numbers, '^%d+ %d+ %d+ %d+ %d+ %d+ %d+$')
  or math.max(#ARGV[6], #ARGV[8], #ARGV[9], #ARGV[12], #ARGV[13], #ARGV[14], #ARGV[20]) > 20 then
  return redis.error_reply('ARGUMENT token/issue: attempt, times and spans are whole numbers')
end
local attempt, issued_at, expires_at, deadline = ARGV[6] + 0, ARGV[8] + 0, ARGV[9] + 0, ARGV[12] + 0
local reanimate_ms, audit_ms, channel, arrive_ms = ARGV[13] + 0, ARGV[14] + 0, ARGV[15], ARGV[20] + 0

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
-- part previous
-- One of the last four tokens that a player's row keeps: <id>:<ending>:<operation>:<request>:<attempt>.
local previous_entry = '([^ :]+):([^ :]+):([^ :]+):([^ :]+):(%d+)'
-- end part

local row = {}
-- Most players have no row and most zones no control entries, and one question for both is cheaper than ten fields of nothing.
local is_blank = redis.call('EXISTS', token, control) == 0
if not is_blank then
  row = redis.call('HMGET', token, 'id', 'state', 'server', 'server_epoch', 'request', 'attempt', 'expires_at',
    'previous', 'cancelled', 'consume_op', 'reason', 'issued_at')
end
local row_id, state, row_server, row_request = row[1], row[2], row[3], row[5]
local row_attempt = whole(row[6]) or 0
local open = row_id and is_open(state)
local live = open and is_lasting(row[12], row[7])
if row_id == id then
  if live then
    return { 'ISSUED' }
  end
  return { 'ENDED', open and 'EXPIRED' or state or '' }
end
local seen_attempt = 0
if row[8] then
  for old_id, old_ending, _, old_request, old_attempt in string.gmatch(row[8], previous_entry) do
    if old_id == id then
      return { 'ENDED', old_ending }
    end
    if old_request == request then
      seen_attempt = math.max(seen_attempt, tonumber(old_attempt))
    end
  end
end

if not is_blank or ARGV[16] ~= '' or ARGV[18] ~= '' or ARGV[17] == 'on' or ARGV[19] == 'on' then
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
  if kill_changed(ARGV[16], server, ARGV[18], server, ARGV[18]) then
    return { 'CONTROL' }
  end
  local killed = killed_by(ARGV[17], server, ARGV[19], server, ARGV[19])
  if killed then
    return { 'KILLED', killed }
  end
end
local held, why, current = alive(node, server_epoch)
if not held then
  return { why, current }
end
-- part skew
-- Whether the clock that a signed time came from is not the store's.
local function is_skewed(signed_at)
  return math.abs(signed_at - now) > 5000
end
-- end part
if is_skewed(issued_at) then
  return { 'SKEW', now_text }
end
if now >= deadline or now >= expires_at then
  return { 'LATE' }
end
if row[9] then
  -- part marks
  -- Whether the request is among those whose cancel came before their token: <request>@<ms>.
  local function is_cancelled(marks, wanted)
    for mark in string.gmatch(marks, '([^ @]+)@') do
      if mark == wanted then
        return true
      end
    end
    return false
  end
  -- end part
  if is_cancelled(row[9], request) then
    return { 'CANCELLED' }
  end
end

local old_due = due
local ending
if open then
  local gone = row[4] ~= server_epoch
  if row_server ~= server then
    local other
    for i = 1, others do
      if ARGV[20 + i] == row_server then
        other = i
      end
    end
    if not other then
      return { 'NEED', row_server or '' }
    end
    old_due = KEYS[6 + 2 * other]
    gone = not alive(KEYS[5 + 2 * other], row[4])
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
  -- part ending
  -- What a row's token has become that was over before it is replaced.
  ending = string.match(state or '', '^[%u_]+$') or 'UNKNOWN'
  -- end part
end
if row_request == request and row_attempt > seen_attempt then
  seen_attempt = row_attempt
end
if attempt <= seen_attempt then
  return { 'ATTEMPT' }
end

if arrive_ms > 0 then
  -- part places
  -- Claims from before the clock stepped back: they hold for longer than they can last, and are over (R-34).
  local stale_claims = {}
  local function is_stale(claim, goes_at)
    return (whole(goes_at) or math.huge) > now + (whole(string.match(claim, ' (%d+)$')) or 3600000) + 5000
  end
  -- How many places are promised or taken without the node's own count; nothing where the key is of another type.
  local function promised(held_key)
    local claims = redis.pcall('ZCOUNT', held_key, '(' .. now_text, '+inf')
    if type(claims) ~= 'number' then
      return nil
    end
    local beyond = string.format('(%.0f', now + arrive_ms + 5000)
    local far = redis.call('ZRANGEBYSCORE', held_key, beyond, '+inf', 'WITHSCORES', 'LIMIT', '0', '256')
    for i = 1, #far, 2 do
      if is_stale(far[i], far[i + 1]) then
        claims = claims - 1
        stale_claims[#stale_claims + 1] = { held = held_key, claim = far[i] }
      end
    end
    return claims
  end
  -- To be called where the script writes.
  local function drop_stale_claims()
    for _, stale in ipairs(stale_claims) do
      redis.call('ZREM', stale.held, stale.claim)
    end
  end
  -- Places of a node that are neither taken, promised nor reserved; a soft cap of 0 is none. A node whose row does not tell its
  -- numbers, or one of whose keys is of another type, has no places (R-35): it stands in nobody else's way (R-42).
  local function unclaimed(players, soft_cap, held_key, due_key)
    local there, cap = whole(players), whole(soft_cap)
    local held, reserved = promised(held_key), redis.pcall('ZCARD', due_key)
    if not (there and cap and held and type(reserved) == 'number') then
      return 0
    end
    return cap == 0 and 1000000 or cap - there - held - reserved
  end
  -- end part
  -- part line_places
  -- Whether lines and tokens have left a place for one more token. Only where a line leads to the server (QUE-15): elsewhere its
  -- inventory alone decides. A token of the player that the new one replaces gives its place.
  local function has_line_place(node_key, held_key)
    local row = redis.call('HMGET', node_key, 'players', 'soft_cap')
    local places = unclaimed(row[1], row[2], held_key, due)
    return places >= 1 or places == 0 and redis.call('ZSCORE', due, player)
  end
  -- end part
  if not has_line_place(node, places_held) then
    return { 'NO_PLACE' }
  end
  drop_stale_claims()
end
if row_id or row[9] then
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
  -- part replace
  -- Takes the old row away: fields id, state, server, server_epoch, request, attempt, expires_at, previous, cancelled,
  -- consume_op and reason. The last four endings and the marks of cancels stay.
  local function retire_token(old, ending, old_due)
    local previous, cancelled, old_server = old[8] or '', old[9] or '', old[3]
    if old[1] then
      local op = old[10] or (ending == 'RELEASED' and old[11] == 'cancelled' and 'cancelled') or '-'
      local endings = { string.format('%s:%s:%s:%s:%.0f', old[1], ending, op, old[5] or '-', whole(old[6]) or 0) }
      for entry in string.gmatch(previous, '[^ ]+') do
        if #endings < 4 then
          endings[#endings + 1] = entry
        end
      end
      previous = table.concat(endings, ' ')
    end
    if old[1] or cancelled ~= '' then
      redis.call('DEL', token)
    end
    if previous ~= '' then
      redis.call('HSET', token, 'previous', previous)
    end
    if cancelled ~= '' then
      redis.call('HSET', token, 'cancelled', cancelled)
    end
    if is_open(old[2]) then
      if old_due ~= due then
        redis.call('ZREM', old_due, player)
        unlist_empty(old_due, servers, old_server)
      end
      redis.call('PUBLISH', channel, 'ended ' .. player .. ' ' .. old[1] .. ' ' .. old_server .. ' ' .. ending)
    end
  end
  -- end part
  retire_token(row, ending, old_due)
end
local attempt_text, payload, issued_text, expires_text, row_v, row_sig =
  ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]
-- part pending
-- A PENDING token where the player has none any more. The indexes go first (R-36).
redis.call('ZADD', due, string.format('%.0f', math.min(expires_at, now + reanimate_ms)), player)
redis.call('SADD', servers, server)
redis.call('HSET', token, 'id', id, 'state', 'PENDING', 'player', player, 'server', server, 'server_epoch', server_epoch,
  'request', request, 'attempt', attempt_text, 'payload', payload, 'issued_at', issued_text, 'expires_at', expires_text,
  'v', row_v, 'sig', row_sig)
redis.call('PEXPIREAT', token, string.format('%.0f', expires_at + audit_ms))
-- end part
return { 'ISSUED' }
