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
--      15 held:<server>         zset, places promised or taken whose players the caller's count does not include yet
-- ARGV 1 line, 2 player, 3 holder (<proxy>:<epoch>), 4 ticket as read, 5 id, 6 server, 7 server_epoch, 8 request,
--      9 attempt, 10 payload (JSON), 11 issued_at (store ms), 12 expires_at (store ms), 13 v, 14 sig, 15 forged (1: the
--      ticket did not verify, evict it), 16 server of the player's live token as last seen (empty for none), 17 graceMs,
--      18 claimReanimateMs, 19 auditMs, 20 line channel, 21 token channel, 22 bytes of control kill as last seen, 23 its
--      verdict, 24 bytes of control kill:<server>, 25 its verdict, 26 arriveMs of the lines that lead to the server (0: none
--      does, and its places are not counted here)
-- Answers DRAINED <expires_at>  the ticket is gone, the token is PENDING until then (store ms; also for a repeat, which
--                          may offer another time)
--         GONE             the ticket is not the one that was read, or does not wait
--         AWAY             its holder is gone: the place is kept for graceMs
--         EVICTED          it was forged
--         TAKEN            the player has a live token: the ticket is gone, the caller keeps its place
--         NO_PLACE         lines and tokens have promised all places of the server: the ticket stays
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
-- Example EVALSHA <sha> 15 maitred:{eu}:lines maitred:{eu}:line:wait maitred:{eu}:tickets:wait maitred:{eu}:away:wait
--         maitred:{eu}:vias:wait maitred:{eu}:via:wait:p1:1796000000000 maitred:{eu}:node:p1 maitred:{eu}:token:alice
--         maitred:{eu}:node:b1 maitred:{eu}:due:b1 maitred:{eu}:due maitred:{eu}:control maitred:{eu}:node:b1
--         maitred:{eu}:due:b1 maitred:{eu}:held:b1 wait alice p1:1796000000000 "1796000000001 0 p1 1796000000000 s1 1796000000000 1 5ebd00f2.xxx r1"
--         t1 b1 1796000000000 r1 1000 {} 1796000001000 1796000031000 1 5ebd00f2.xxx 0 "" 30000 5000 60000
--         maitred:{eu}:events:line maitred:{eu}:events:token "" off "" off 0
if #KEYS ~= 15 or #ARGV ~= 26 then
  return redis.error_reply('ARITY queue/drain takes 15 keys and 26 arguments')
end
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local lines, line, tickets, away, vias, via = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local holder_node, token, node, due, servers, control = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local other_node, other_due, places_held = KEYS[13], KEYS[14], KEYS[15]
local name, player, holder, id, server, server_epoch = ARGV[1], ARGV[2], ARGV[3], ARGV[5], ARGV[6], ARGV[7]
local channel, request, attempt, issued_at, expires_at = ARGV[21], ARGV[8], whole(ARGV[9]), whole(ARGV[11]), whole(ARGV[12])
local grace_ms, reanimate_ms, audit_ms, arrive_ms = whole(ARGV[17]), whole(ARGV[18]), whole(ARGV[19]), whole(ARGV[26])
if not (attempt and issued_at and expires_at and grace_ms and reanimate_ms and audit_ms and arrive_ms) then
  return redis.error_reply('ARGUMENT queue/drain: attempt, times and spans are whole numbers')
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
-- part skew
-- Whether the clock that a signed time came from is not the store's.
local function is_skewed(signed_at)
  return math.abs(signed_at - now) > 5000
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
-- part holder
-- The epoch of a holder, <proxy>:<epoch>.
local function holder_epoch(text)
  return string.match(text, ':(%d+)$')
end
-- end part

local row = redis.call('HMGET', token, 'id', 'state', 'server', 'server_epoch', 'request', 'attempt', 'expires_at',
  'previous', 'cancelled', 'consume_op', 'reason', 'issued_at')
local state, row_server = row[2], row[3]
local open = row[1] and is_open(state)
local live = open and is_lasting(row[12], row[7])
if row[1] == id then
  if live then
    return { 'DRAINED', row[7] }
  end
  return { 'ENDED' }
end
if ended_as(row[8], id) then
  return { 'ENDED' }
end
local held, why, current = alive(node, server_epoch)
if not held then
  return { why, current }
end
if kill_changed(ARGV[22], server, ARGV[24], server, ARGV[24]) then
  return { 'CONTROL' }
end
local killed = killed_by(ARGV[23], server, ARGV[25], server, ARGV[25])
if killed then
  return { 'KILLED', killed }
end
if is_skewed(issued_at) or now >= expires_at then
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
elseif not alive(holder_node, holder_epoch(holder)) then
  word = 'AWAY'
elseif is_cancelled(row[9] or '', request) then
  word = 'CANCELLED'
end
local old_due, ending = due, nil
if row[1] then
  -- part ending
  -- What a row's token has become that was over before it is replaced.
  ending = string.match(state or '', '^[%u_]+$') or 'UNKNOWN'
  -- end part
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

if word == 'DRAINED' and arrive_ms > 0 and not has_line_place(node, places_held) then
  return { 'NO_PLACE' }
end

drop_stale_claims()
redis.call('ZREM', line, player)
redis.call('SREM', via, player)
unlist_empty(via, vias, holder)
if word == 'AWAY' then
  redis.call('ZADD', away, string.format('%.0f', now + grace_ms), player)
  return { word }
end
redis.call('HDEL', tickets, player)
if redis.call('EXISTS', tickets) == 0 then
  -- Stays listed until a sweep takes the gate away too: nobody's config names a wait line.
  redis.pcall('SADD', lines, name)
end
if word ~= 'DRAINED' then
  redis.call('PUBLISH', ARGV[20], 'left ' .. name .. ' ' .. player)
  return { word }
end
retire_token(row, ending, old_due)
local attempt_text, payload, issued_text, expires_text, row_v, row_sig =
  ARGV[9], ARGV[10], ARGV[11], ARGV[12], ARGV[13], ARGV[14]
-- part pending
-- A PENDING token where the player has none any more. The indexes go first (R-36).
redis.call('ZADD', due, string.format('%.0f', math.min(expires_at, now + reanimate_ms)), player)
redis.call('SADD', servers, server)
redis.call('HSET', token, 'id', id, 'state', 'PENDING', 'player', player, 'server', server, 'server_epoch', server_epoch,
  'request', request, 'attempt', attempt_text, 'payload', payload, 'issued_at', issued_text, 'expires_at', expires_text,
  'v', row_v, 'sig', row_sig)
redis.call('PEXPIREAT', token, string.format('%.0f', expires_at + audit_ms))
-- end part
redis.call('PUBLISH', ARGV[20], 'drained ' .. name .. ' ' .. player .. ' ' .. id .. ' ' .. server)
return { 'DRAINED', ARGV[12] }
