-- queue/admit: admits the heads of a line in order, as far as the gate and the places allow.
--
-- KEYS 1 lines             set, the lines that hold tickets
--      2 line:<line>       zset, player -> lane * 2^42 + sequence
--      3 tickets:<line>    hash, player -> ticket
--      4 away:<line>       zset, player -> when the place goes
--      5 gate:<line>       hash
--      6 vias:<line>       set, the holders that have a via: set
--      7 node:<admitter>   hash, the caller's row
--      8 control           hash, kill switch entries
--      9 nodes:<role>      zset, the roster that the gate counts
--      then a pair for each holder: node:<proxy>, via:<line>:<holder>;
--      then three for each target: node:<id>, held:<id>, due:<id>; then pass:<line>:<player> for each candidate
-- ARGV 1 line, 2 admitter, 3 its epoch, 4 lane weights (1 to 16 whole numbers, blanks between), 5 fixed rate a second
--      (0: by backends), 6 rate a second for each live backend, 7 burst (0: a quarter second's worth), 8 passMs,
--      9 expires_at of the passes (store ms), 10 arriveMs, 11 graceMs, 12 v, 13 channel, 14 number of holders (0 to 16),
--      15 number of targets (0 to 16), 16 bytes of control kill as last seen, 17 its verdict, 18 bytes of
--      control kill:<admitter>, 19 its verdict,
--      then for each holder: <proxy>:<epoch>;
--      for each target: id, epoch, bytes of control kill:<id>, its verdict;
--      for each candidate (0 to 64) in the order of queue/peek: lane, player, ticket as read, verdict (ok, forged,
--      strange), number of its holder, of its server and of its link (0: none), op, sig
-- Answers ROUND <reason> <next ms> <rate> <waiting> <free>... <word>...  reason: EMPTY, MORE (beyond the candidates),
--                  CHANGED (another head), GATE, FULL (the server or link of the head), BLOCKED (a ticket of another v),
--                  PAUSED, DONE (a repeat); next ms: when the gate opens again (-1: not by itself); the free places of
--                  each target; a word a candidate: ADMITTED:<serial>:<seq>, AWAY, EVICTED, KEPT
--         CONTROL         other control entries stand than those passed: read, verify, repeat
--         KILLED <entry>  a kill switch is on
--         NO_LEASE        the caller's row is gone or too old
--         FENCED <epoch>  the caller's epoch is over
--         SKEW <now>      the time of the passes is off by more than 5 s
-- Events  admitted <line> <player>..., left <line> <player> for an evicted one
-- Bound   64 players, 16 holders, 16 targets, 16 lanes.
-- Repeat  a candidate whose pass has the same op was admitted before: its serial is answered, and nothing more is done.
-- Example EVALSHA <sha> 15 maitred:{eu}:lines maitred:{eu}:line:login maitred:{eu}:tickets:login maitred:{eu}:away:login
--         maitred:{eu}:gate:login maitred:{eu}:vias:login maitred:{eu}:node:p1 maitred:{eu}:control
--         maitred:{eu}:nodes:backend maitred:{eu}:node:p1 maitred:{eu}:via:login:p1:1796000000000 maitred:{eu}:node:b1
--         maitred:{eu}:held:b1 maitred:{eu}:due:b1 maitred:{eu}:pass:login:alice login p1 1796000000000 1 500 100 0
--         1800000 1796001800000 60000 30000 1 maitred:{eu}:events:line 1 1 "" off "" off p1:1796000000000 b1 1796000000000 "" off
--         0 alice "1796000000001 0 p1 1796000000000 s1 1796000000000 1 5ebd00f2.xxx " ok 1 1 0 op1 5ebd00f2.xxx

-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
-- part weights
-- The weights of a line's lanes, out of whole numbers with blanks between.
local function weights_of(text)
  local found = {}
  for weight in string.gmatch(text, '%d+') do
    found[#found + 1] = math.max(1, tonumber(weight))
  end
  return found
end
-- end part

local holders, targets = whole(ARGV[14]), whole(ARGV[15])
local count = holders and targets and (#ARGV - 19 - holders - 4 * targets) / 9
if not count or holders > 16 or targets > 16 or count < 0 or count > 64 or count ~= math.floor(count)
  or #KEYS ~= 9 + 2 * holders + 3 * targets + count then
  return redis.error_reply('ARITY queue/admit takes 9 keys and 19 arguments, and those of up to 16 holders, 16 targets, 64 candidates')
end
local lines, line, tickets, away, gate = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local vias, admitter_node, control, roster = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local name, admitter, admitter_epoch = ARGV[1], ARGV[2], ARGV[3]
local fixed, each, burst, pass_ms = whole(ARGV[5]), whole(ARGV[6]), whole(ARGV[7]), whole(ARGV[8])
local expires_at, arrive_ms, grace_ms = whole(ARGV[9]), whole(ARGV[10]), whole(ARGV[11])
local weights = weights_of(ARGV[4])
if not (fixed and each and burst and pass_ms and expires_at and arrive_ms and grace_ms) or #weights < 1
  or #weights > 16 then
  return redis.error_reply('ARGUMENT queue/admit: rates, times, spans and 1 to 16 weights are whole numbers')
end

-- part time
local time = redis.call('TIME')
-- Milliseconds cut out as text: cheaper than arithmetic and %.0f, and the same digits on every Lua.
local now_text = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now = tonumber(now_text)
-- end part
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
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
-- part free
-- The free places of a node, none of one that takes nobody; its lease as its row says it; and whether its build names the
-- claims in `held:`.
local function free(node_key, held_key, due_key, epoch)
  local row = redis.pcall('HMGET', node_key, 'epoch', 'beat_at', 'lease_ms', 'state', 'accepting', 'players', 'soft_cap',
    'claims')
  if row[1] ~= epoch or lease_left(row[2], row[3]) < 0 or row[5] ~= '1'
    or (row[4] ~= 'ready' and row[4] ~= 'degraded') then
    return 0, row[3], false
  end
  return unclaimed(row[6], row[7], held_key, due_key), row[3], row[8] == '1'
end
-- end part
-- part claim
-- Who holds a place (R-40): the player, what the place was promised by, how long it lasts in ms, blanks between. A build
-- that does not know this names the player alone, and leaves no such time behind.
local function claim_of(player, promised_by, lasts)
  return lasts and player .. ' ' .. promised_by .. ' ' .. lasts or player
end
-- end part
-- part names
-- What no player can be called was written by hand, and so was a ticket that is no text.
local function is_name(member, is_ticket)
  if not string.find(member, is_ticket and '[^%w%p%s%c]' or '[^%w%p]') then
    return is_ticket or (member ~= '' and #member <= 128)
  end
  local at, size, most = 1, #member, is_ticket and 1024 or 128
  while at <= size and size <= most do
    local code = string.byte(member, at)
    local more = code < 128 and 0 or code < 194 and 4 or code < 224 and 1 or code < 240 and 2 or code < 245 and 3 or 4
    if at + more > size then
      return false
    end
    code = code < 128 and code or code % 2 ^ (6 - more)
    for i = at + 1, at + more do
      local byte = string.byte(member, i)
      if byte < 128 or byte > 191 then
        return false
      end
      code = code * 64 + byte - 128
    end
    -- Longer than needed, half of a pair; in a name also control characters and blanks.
    if more > 3 or (more == 2 and code < 2048) or (more == 3 and code < 65536) or code > 1114111
      or (code >= 55296 and code <= 57343) or not is_ticket and (code <= 32 or (code >= 127 and code <= 160)
      or code == 5760 or (code >= 8192 and code <= 8202) or code == 8232 or code == 8233 or code == 8239
      or code == 8287 or code == 12288) then
      return false
    end
    at = at + more + 1
  end
  return size <= most
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
-- part lanes
local lane_size = 4398046511104
-- The scores of a lane, which count from 0. The last lane of a line has also those behind it.
local function lane_bounds(index, lanes)
  return string.format('%.0f', index * lane_size),
    index == lanes - 1 and '+inf' or '(' .. string.format('%.0f', (index + 1) * lane_size)
end
-- end part
-- part lane_behind
-- The next lane behind that one that somebody stands in.
local function lane_behind(line_key, index)
  local head = redis.call('ZRANGEBYSCORE', line_key, string.format('%.0f', (index + 1) * lane_size), '+inf',
    'WITHSCORES', 'LIMIT', '0', '1')
  return head[2] and math.min(15, math.floor(tonumber(head[2]) / lane_size))
end
-- end part
-- part lane_heads
-- The first of a lane. With those of the last one stand those of lanes that the line does not have any more, all of them in
-- the order of their sequences: else whoever stands there would wait behind every newcomer.
local function lane_heads(line_key, index, lanes, most)
  local lower, upper = lane_bounds(index, lanes)
  local behind = index == lanes - 1 and index < 15 and lane_behind(line_key, index)
  if not behind then
    return redis.call('ZRANGEBYSCORE', line_key, lower, upper, 'LIMIT', '0', most)
  end
  local found = {}
  while index do
    local _, limit = lane_bounds(index, 16)
    local page = redis.call('ZRANGEBYSCORE', line_key, string.format('%.0f', index * lane_size), limit, 'WITHSCORES',
      'LIMIT', '0', most)
    for i = 1, #page, 2 do
      found[#found + 1] = { member = page[i], seq = tonumber(page[i + 1]) - index * lane_size, place = #found }
    end
    index = index < 15 and lane_behind(line_key, index)
  end
  table.sort(found, function(a, b)
    if a.seq == b.seq then
      return a.place < b.place
    end
    return a.seq < b.seq
  end)
  local members = {}
  for i = 1, math.min(#found, tonumber(most)) do
    members[i] = found[i].member
  end
  return members
end
-- end part
-- part turns
-- The virtual time of each lane.
local function lanes_ahead(text, lanes)
  local times = {}
  for number in string.gmatch(text or '', '%d+') do
    times[#times + 1] = tonumber(number)
  end
  for i = 1, lanes do
    times[i] = times[i] or 0
  end
  return times
end
-- The lane whose head is next: of those that have one, the least ahead.
local function next_lane(heads, at, ahead)
  local best
  for i = 1, #heads do
    if heads[i][at[i]] and (not best or ahead[i] < ahead[best]) then
      best = i
    end
  end
  return best
end
-- end part
-- part rate
-- How many the gate lets through in a second: a fixed number, or so many for each live node. One that has not beaten for
-- 3 s or for a lease, as the last round found it on the nodes, whichever is longer, is not alive (R-24).
local function gate_rate(fixed, each, roster_key, lease_text)
  if fixed > 0 then
    return fixed
  end
  local span = math.max(3000, math.min(600000, whole(lease_text) or 0))
  return each * redis.call('ZCOUNT', roster_key, string.format('%.0f', now - span), string.format('%.0f', now + span))
end
-- end part
-- part gate
-- What is in the gate's bucket (a million for each player), and when it was filled. It starts empty where there is none or
-- the clock went back. `waited_since` (ms) is since when somebody has been waiting for it.
local function gate_bucket(bucket_text, refilled_text, rate, burst, waited_since)
  local most = math.max(1, burst > 0 and burst or math.floor(rate / 4)) * 1000000
  local bucket, refilled_at = whole(bucket_text), whole(refilled_text)
  if not (bucket and refilled_at and refilled_at <= now_us + 1000000) then
    bucket, refilled_at = 0, now_us
  elseif now_us > refilled_at then
    if waited_since and bucket < 1000000 then
      -- Whoever waits at a shut gate loses nothing by a round that comes late: one player's worth, or 50 ms' of them.
      local late = 1000000 + math.max(1000000, rate * 50000)
      most = math.max(most, math.min(late, (now_us - waited_since * 1000) * rate))
    end
    bucket, refilled_at = bucket + (now_us - refilled_at) * rate, now_us
  end
  return math.min(bucket, most), refilled_at
end
-- The last number that was given. One that no script can have given would be the end of all numbers.
local function last_given(text, limit)
  local number = whole(text) or 0
  return number < limit and number or 0
end
-- end part
-- part holder
-- The epoch of a holder, <proxy>:<epoch>.
local function holder_epoch(text)
  return string.match(text, ':(%d+)$')
end
-- end part
-- part ticket
-- A ticket's sequence, lane, holder (<proxy>:<epoch>) and session; nothing of a text that is none.
local function read_ticket(text)
  local seq_text, lane_text, node_id, node_epoch, held_for =
    string.match(text or '', '^(%d+) (%d+) ([^ ]+) (%d+) ([^ ]+) ')
  return seq_text, lane_text, node_id and node_id .. ':' .. node_epoch, held_for
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

-- The candidates as the caller named them; `serial` and `seq` where the pass that was offered is there already.
local function read_candidates()
  local found, is_repeat = {}, false
  for i = 1, count do
    local base = 19 + holders + 4 * targets + 9 * (i - 1)
    local candidate = { lane = whole(ARGV[base + 1]) or 0, player = ARGV[base + 2], ticket = ARGV[base + 3],
      verdict = ARGV[base + 4], holder = whole(ARGV[base + 5]) or 0, server = whole(ARGV[base + 6]) or 0,
      link = whole(ARGV[base + 7]) or 0, op = ARGV[base + 8], sig = ARGV[base + 9],
      pass = KEYS[9 + 2 * holders + 3 * targets + i] }
    -- A key of another type is no pass, and must not hold up those behind: the admission writes it anew.
    local row = redis.pcall('HMGET', candidate.pass, 'op', 'serial', 'seq', 'fails', 'expires_at', 'void', 'redeemed_at',
      'held')
    if row[1] == candidate.op and row[2] then
      candidate.word, candidate.serial, candidate.seq, is_repeat = 'ADMITTED', row[2], row[3] or '0', true
    end
    -- What the pass that goes still holds under its own name.
    candidate.replaced = row[8] and not row[7] and claim_of(candidate.player, name .. ':' .. (row[2] or ''), row[8])
    candidate.fails = row[6] == '1' and now < (whole(row[5]) or 0) and row[4] or '0'
    found[i] = candidate
  end
  return found, is_repeat
end
-- Appends the free places of each target and a word a candidate.
local function tell(answer, room, candidates)
  for i = 1, targets do
    answer[#answer + 1] = string.format('%.0f', room[i] and room[i].places or 0)
  end
  for _, candidate in ipairs(candidates) do
    answer[#answer + 1] = candidate.serial and candidate.word .. ':' .. candidate.serial .. ':' .. candidate.seq
      or candidate.word or 'KEPT'
  end
end
-- The heads of each lane, one more than the lane has candidates, and what stands there under no name.
local function read_heads(queues)
  local heads, junk = {}, {}
  for i = 1, #weights do
    local most = string.format('%.0f', #queues[i] + 1)
    heads[i] = {}
    for _, member in ipairs(lane_heads(line, i - 1, #weights, most)) do
      -- Nobody is admitted under what is no name, and at the head it would hold up all.
      local list = is_name(member) and heads[i] or junk
      list[#list + 1] = member
    end
  end
  return heads, junk
end
-- How many were admitted in each of the last eight spans of 2 s.
local function pace(recent_text, admitted)
  local slot = string.format('%.0f', math.floor(now / 2000))
  local recent = {}
  for entry, slot_count in string.gmatch(recent_text or '', '(%d+):(%d+)') do
    if #recent == 0 and entry ~= slot then
      recent[1] = slot .. ':' .. string.format('%.0f', admitted)
    end
    if #recent < 8 then
      recent[#recent + 1] = entry == slot and entry .. ':' .. string.format('%.0f', tonumber(slot_count) + admitted)
        or entry .. ':' .. slot_count
    end
  end
  if #recent == 0 then
    recent[1] = slot .. ':' .. string.format('%.0f', admitted)
  end
  return table.concat(recent, ' ')
end

-- How long a place is held under a name of its own, as text. All who may have to find it again have to know such names: the
-- proxy, and the nodes.
local function held_for(proxy, server, link)
  if proxy.claims == nil then
    proxy.claims = redis.call('HGET', proxy.node, 'claims') == '1'
  end
  local known = proxy.claims and (not server or server.claims) and (not link or link.claims)
  return known and string.format('%.0f', arrive_ms) or nil
end

local candidates, is_repeat = read_candidates()
if is_repeat then
  local again = { 'ROUND', 'DONE', '0', '0', '0' }
  tell(again, {}, candidates)
  return again
end
local held, why, current = alive(admitter_node, admitter_epoch)
if not held then
  return { why, current }
end
if is_skewed(expires_at - pass_ms) then
  return { 'SKEW', now_text }
end
local changed, controlled = kill_changed(ARGV[16], admitter, ARGV[18], admitter, ARGV[18])
if changed then
  return { 'CONTROL' }
end
local room, lease_ms = {}, 0
for i = 1, targets do
  local base, key_base = 19 + holders + 4 * (i - 1), 9 + 2 * holders + 3 * (i - 1)
  if (controlled and redis.call('HGET', control, 'kill:' .. ARGV[base + 1]) or '') ~= ARGV[base + 3] then
    return { 'CONTROL' }
  end
  local places, lease_text, claims = free(KEYS[key_base + 1], KEYS[key_base + 2], KEYS[key_base + 3], ARGV[base + 2])
  lease_ms = math.max(lease_ms, whole(lease_text) or 0)
  room[i] = { held = KEYS[key_base + 2], id = ARGV[base + 1], places = ARGV[base + 4] == 'on' and 0 or places,
    claims = claims }
end
local killed = killed_by(ARGV[17], admitter, ARGV[19], admitter, ARGV[19])
if killed then
  return { 'KILLED', killed }
end
local proxies = {}
for i = 1, holders do
  local epoch = holder_epoch(ARGV[19 + i])
  -- A set of another type stays as it is: the players of one proxy must not hold up all others.
  local is_set = type(redis.pcall('SCARD', KEYS[9 + 2 * i])) == 'number'
  proxies[i] = { via = KEYS[9 + 2 * i], is_set = is_set, name = ARGV[19 + i], node = KEYS[8 + 2 * i],
    alive = epoch and alive(KEYS[8 + 2 * i], epoch) }
end

local state = redis.call('HMGET', gate, 'bucket', 'refilled_at', 'serial', 'paused', 'recent', 'lanes', 'full',
  'busy', 'lease')
local lease_text = lease_ms > 0 and string.format('%.0f', lease_ms) or state[9]
local rate = gate_rate(fixed, each, roster, lease_text)
local bucket, refilled_at = gate_bucket(state[1], state[2], rate, burst, whole(state[8]))
local serial = last_given(state[3], 9007199254740991)
-- The pace is measured anew where nobody asked for long: there was no store, no admitter, or a kill switch was on. Where
-- places were short then, nobody had to ask.
local looked_at, full_at = whole(state[2]) or now_us, whole(state[7])
if not (full_at and full_at <= now + 1000) then
  full_at = 0
end
local anew = looked_at > now_us + 1000000 or now_us - looked_at > 4000000 and looked_at > full_at * 1000 + 999

local waiting = redis.call('ZCARD', line)
redis.call('ZCARD', away)
local queues, at, ahead = {}, {}, lanes_ahead(state[6], #weights)
for i = 1, #weights do
  queues[i], at[i] = {}, 1
end
for _, candidate in ipairs(candidates) do
  local queue = queues[math.min(candidate.lane + 1, #weights)]
  queue[#queue + 1] = candidate
  local standing = redis.call('HGET', tickets, candidate.player) or ''
  -- As peek tells it: a ticket that is no text is none.
  candidate.standing = is_name(standing, true) and standing or ''
end
local heads, junk = read_heads(queues)

-- The order is decided here, by the lanes' virtual times: a lane that was idle starts where the others are.
local plan, reason, admitted = {}, #junk > 0 and 'MORE' or 'EMPTY', 0
while true do
  local best = next_lane(heads, at, ahead)
  if not best then
    break
  end
  local candidate = queues[best][at[best]]
  if not candidate then
    reason = 'MORE'
    break
  end
  if candidate.player ~= heads[best][at[best]] or candidate.standing ~= candidate.ticket then
    reason = 'CHANGED'
    break
  end
  local proxy = proxies[candidate.holder]
  local server, link = room[candidate.server], room[candidate.link]
  if candidate.ticket == '' or candidate.verdict == 'forged' then
    candidate.word = 'EVICTED'
  elseif candidate.verdict ~= 'ok' or not proxy then
    reason, full_at = 'BLOCKED', now
    break
  elseif not proxy.alive then
    candidate.word = 'AWAY'
  elseif state[4] == '1' then
    reason = 'PAUSED'
    break
  elseif bucket < 1000000 then
    reason = 'GATE'
    break
  elseif not (server or link) or (server and server.places < 1) or (link and link.places < 1) then
    reason, full_at = 'FULL', (server or link) and full_at or now
    break
  else
    candidate.word = 'ADMITTED'
    serial = math.max(serial + 1, now_us)
    candidate.serial = string.format('%.0f', serial)
    local seq, place_lane, _, session = read_ticket(candidate.ticket)
    candidate.seq, candidate.place_lane, candidate.session = seq, place_lane, session
    candidate.lasts = held_for(proxy, server, link)
    candidate.claim = claim_of(candidate.player, name .. ':' .. candidate.serial, candidate.lasts)
    if server then
      server.places, server.used = server.places - 1, true
    end
    if link then
      link.places, link.used = link.places - 1, true
    end
    bucket, admitted = bucket - 1000000, admitted + 1
    local base = ahead[best]
    for i = 1, #weights do
      ahead[i] = math.max(0, ahead[i] - base)
    end
    ahead[best] = math.floor(720720 / weights[best])
  end
  plan[#plan + 1] = candidate
  at[best] = at[best] + 1
end
local next_ms = '-1'
if bucket >= 1000000 then
  next_ms = '0'
elseif rate > 0 then
  next_ms = string.format('%.0f', math.ceil((1000000 - bucket) / rate / 1000))
end

drop_stale_claims()
redis.call('HSET', gate, 'bucket', string.format('%.0f', bucket), 'refilled_at', string.format('%.0f', refilled_at),
  'full', string.format('%.0f', full_at), 'lease', lease_text or '0')
if anew then
  redis.call('HSET', gate, 'busy', now_text, 'recent', '')
end
if admitted > 0 then
  for i = 1, #weights do
    ahead[i] = string.format('%.0f', ahead[i])
  end
  redis.call('HSET', gate, 'serial', string.format('%.0f', serial), 'recent',
    pace(not anew and state[5] or '', admitted), 'lanes', table.concat(ahead, ' ', 1, #weights))
end
local told = { 'admitted', name }
local goes_at, place_goes = string.format('%.0f', now + grace_ms), string.format('%.0f', now + arrive_ms)
for i = 1, targets do
  local target = room[i]
  if target.used then
    redis.call('ZREMRANGEBYSCORE', target.held, '-inf', now_text)
  end
end
for _, member in ipairs(junk) do
  redis.call('ZREM', line, member)
  redis.call('HDEL', tickets, member)
end
for _, candidate in ipairs(plan) do
  local player, proxy = candidate.player, proxies[candidate.holder]
  redis.call('ZREM', line, player)
  if proxy and proxy.is_set then
    redis.call('SREM', proxy.via, player)
    proxy.left = true
  end
  if candidate.word == 'AWAY' then
    redis.call('ZADD', away, goes_at, player)
  else
    redis.call('HDEL', tickets, player)
  end
  if candidate.word == 'EVICTED' then
    redis.call('PUBLISH', ARGV[13], 'left ' .. name .. ' ' .. player)
  elseif candidate.word == 'ADMITTED' then
    local server, link = room[candidate.server], room[candidate.link]
    told[#told + 1] = player
    redis.call('DEL', candidate.pass)
    redis.call('HSET', candidate.pass, 'serial', candidate.serial, 'server', server and server.id or '', 'link',
      link and link.id or '', 'seq', candidate.seq or '0', 'lane', candidate.place_lane or '0', 'expires_at', ARGV[9],
      'op', candidate.op, 'v', ARGV[12], 'sig', candidate.sig, 'session', candidate.session or '', 'fails',
      candidate.fails)
    if candidate.lasts then
      redis.call('HSET', candidate.pass, 'held', candidate.lasts)
    end
    redis.call('PEXPIREAT', candidate.pass, ARGV[9])
    for _, target in ipairs({ server or link, server and link }) do
      if candidate.replaced then
        redis.call('ZREM', target.held, candidate.replaced)
      end
      redis.call('ZADD', target.held, place_goes, candidate.claim)
    end
  end
end
for i = 1, targets do
  local target = room[i]
  -- Promises of another line may last longer than this one's.
  if target.used and redis.call('PTTL', target.held) < arrive_ms then
    redis.call('PEXPIRE', target.held, ARGV[10])
  end
end
for i = 1, holders do
  local proxy = proxies[i]
  if proxy.left then
    unlist_empty(proxy.via, vias, proxy.name)
  end
end
if #plan + #junk > 0 then
  unlist_empty(tickets, lines, name)
end
if admitted > 0 then
  redis.call('PUBLISH', ARGV[13], table.concat(told, ' '))
end
local answer = { 'ROUND', reason, next_ms, string.format('%.0f', rate), string.format('%.0f', waiting - #plan - #junk) }
tell(answer, room, candidates)
return answer
