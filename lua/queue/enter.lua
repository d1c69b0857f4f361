-- queue/enter: gives a player a place in a line, the same place again, or admits at once where nobody waits.
--
-- KEYS 1 lines                          set, the lines that hold tickets
--      2 line:<line>                    zset, player -> lane * 2^42 + sequence
--      3 tickets:<line>                 hash, player -> ticket
--      4 away:<line>                    zset, player -> when the place goes
--      5 gate:<line>                    hash
--      6 vias:<line>                    set, the holders that have a via: set
--      7 via:<line>:<proxy>:<epoch>     set, players whose ticket the caller holds
--      8 node:<proxy>                   hash, the caller's row
--      9 pass:<line>:<player>           hash
--      10 control                       hash, kill switch entries
--      11 nodes:<role>                  zset, the roster that the gate counts
--      12 via:<line>:<holder>           set of the holder in ARGV 17 (KEYS 7 again where there is none)
--      13 node:<server>                hash, of ARGV 18 (KEYS 8 where there is none)
--      14 held:<server>                zset, of ARGV 18 (KEYS 4 where there is none)
--      15 due:<server>                 zset, of ARGV 18 (KEYS 4 where there is none)
--      16 node:<link>                  hash, of ARGV 20 (KEYS 8 where there is none)
--      17 held:<link>                  zset, of ARGV 20 (KEYS 4 where there is none)
--      18 due:<link>                   zset, of ARGV 20 (KEYS 4 where there is none)
-- ARGV 1 line, 2 player, 3 lane (as signed), 4 proxy, 5 proxy_epoch, 6 session, 7 joined_at (store ms), 8 v, 9 sig,
--      10 attributes, 11 maxWaiting, 12 lane weights (1 to 16 whole numbers, blanks between), 13 fixed rate a second
--      (0: by backends), 14 rate a second for each live backend, 15 burst (0: a quarter second's worth), 16 passMs,
--      17 holder of the ticket as last seen (<proxy>:<epoch>, empty for none), 18 server (empty for none), 19 its epoch,
--      20 link (empty for none), 21 its epoch, 22 expires_at of the pass, 23 op of the pass, 24 sig of the pass,
--      25 arriveMs, 26 channel, 27 bytes of control kill as last seen, 28 its verdict, 29 bytes of control kill:<server>,
--      30 its verdict, 31 bytes of control kill:<link>, 32 its verdict, 33 sequence that a player without a ticket had (0
--      for none): the place is that one again
-- Answers ADMITTED <serial> <seq>  the player is in, with the pass that was offered
--         PASS <serial> <server> <link> <expires_at> <op> <v> <sig> <seq> <lane>  a live pass stands: this one
--         WAITING <seq> <lane> <rank> <rate> <busy> <full> <recent> <lanes> <length>...  waits; rank inside the lane from
--                         0, then what position and estimate are made of, with a length for each lane; rate 0: paused
--         FULL            the line holds maxWaiting tickets
--         LANE <lane>     the player's place is in that lane: sign it and ask again
--         CONTROL         other control entries stand than those passed: read, verify, repeat
--         NO_LEASE        the caller's row is gone or too old
--         FENCED <epoch>  the caller's epoch is over
--         SKEW <now>      joined_at or the time of the pass is off by more than 5 s
--         NEED <holder>   the via: key of that holder has to be passed
-- Events  admitted <line> <player>, entered <line>
-- Bound   one player, 16 lanes.
-- Repeat  the ticket of the same session is answered WAITING, the pass of the same op PASS.
-- Example EVALSHA <sha> 18 maitred:{eu}:lines maitred:{eu}:line:login maitred:{eu}:tickets:login maitred:{eu}:away:login
--         maitred:{eu}:gate:login maitred:{eu}:vias:login maitred:{eu}:via:login:p1:1796000000000 maitred:{eu}:node:p1
--         maitred:{eu}:pass:login:alice maitred:{eu}:control maitred:{eu}:nodes:backend
--         maitred:{eu}:via:login:p1:1796000000000 maitred:{eu}:node:b1 maitred:{eu}:held:b1 maitred:{eu}:due:b1
--         maitred:{eu}:node:p1 maitred:{eu}:away:login maitred:{eu}:away:login login alice 0 p1 1796000000000 s1 1796000001000 1 5ebd00f2.xxx ""
--         100000 1 500 100 0 1800000 "" b1 1796000000000 "" 0 1796001801000 op1 5ebd00f2.xxx 60000
--         maitred:{eu}:events:line "" off "" off "" off 0
if #KEYS ~= 18 or #ARGV ~= 33 then
  return redis.error_reply('ARITY queue/enter takes 18 keys and 33 arguments')
end
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
local lines, line, tickets, away, gate = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local vias, via, node, pass, control, roster = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local old_via, server_node, server_held, server_due = KEYS[12], KEYS[13], KEYS[14], KEYS[15]
local link_node, link_held, link_due = KEYS[16], KEYS[17], KEYS[18]
local name, player, lane, proxy, proxy_epoch, session =
  ARGV[1], ARGV[2], whole(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]
local joined_at, max_waiting, pass_ms = whole(ARGV[7]), whole(ARGV[11]), whole(ARGV[16])
local fixed, each, burst = whole(ARGV[13]), whole(ARGV[14]), whole(ARGV[15])
local server, link, expires_at, op, arrive_ms = ARGV[18], ARGV[20], whole(ARGV[22]), ARGV[23], whole(ARGV[25])
local kept = whole(ARGV[33])
local weights = weights_of(ARGV[12])
if not (lane and joined_at and max_waiting and pass_ms and fixed and each and burst and expires_at and arrive_ms and kept)
  or #weights < 1 or #weights > 16 then
  return redis.error_reply('ARGUMENT queue/enter: lane, times, spans, rates and 1 to 16 weights are whole numbers')
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
-- part hold
-- Holds a place. Promises of another line may last longer than this one's.
local function hold(held_key, claim, place_goes)
  redis.call('ZADD', held_key, place_goes, claim)
  if redis.call('PTTL', held_key) < arrive_ms then
    redis.call('PEXPIRE', held_key, string.format('%.0f', arrive_ms))
  end
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
-- part ticket
-- A ticket's sequence, lane, holder (<proxy>:<epoch>) and session; nothing of a text that is none.
local function read_ticket(text)
  local seq_text, lane_text, node_id, node_epoch, held_for =
    string.match(text or '', '^(%d+) (%d+) ([^ ]+) (%d+) ([^ ]+) ')
  return seq_text, lane_text, node_id and node_id .. ':' .. node_epoch, held_for
end
-- end part
-- part ticket_text
-- The ticket that the caller signed, at the place where the player stands; read_ticket reads it.
local function ticket_text(seq_text, lane_text)
  return table.concat({ seq_text, lane_text, proxy, proxy_epoch, session, ARGV[7], ARGV[8], ARGV[9], ARGV[10] }, ' ')
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
-- part lane_rank
-- How many are served before whoever has that sequence in the lane, out of the same lane and those served with it.
local function lane_rank(line_key, lane, seq, lanes)
  local own = math.min(lane, 15)
  local index = math.min(own, lanes - 1)
  local is_last, rank = index == lanes - 1, 0
  while index do
    -- Of equal sequences the lower lane comes first.
    local upper = string.format('%.0f', index * lane_size + seq)
    rank = rank + redis.call('ZCOUNT', line_key, string.format('%.0f', index * lane_size),
      index < own and upper or '(' .. upper)
    index = is_last and index < 15 and lane_behind(line_key, index)
  end
  return rank
end
-- end part
-- part lengths
-- How many wait in each lane, the first one at 1.
local function lane_lengths(line_key, lanes, in_all)
  local lengths = {}
  for i = 1, lanes do
    local lower, upper = lane_bounds(i - 1, lanes)
    lengths[i] = lanes == 1 and in_all or redis.call('ZCOUNT', line_key, lower, upper)
  end
  return lengths
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

-- A key of another type is no pass.
local standing = redis.pcall('HMGET', pass, 'serial', 'server', 'link', 'expires_at', 'op', 'v', 'sig', 'seq', 'lane',
  'redeemed_at', 'arrived_at', 'void', 'session', 'fails', 'failed_op', 'held')
local unspent = standing[1] and not standing[10] and now < (whole(standing[4]) or 0)
local live = unspent and not standing[12] and (not standing[11] or standing[13] == session)
if live and (standing[5] == op or standing[13] == session) then
  return { 'PASS', standing[1], standing[2] or '', standing[3] or '', standing[4] or '', standing[5] or '',
    standing[6] or '', standing[7] or '', standing[8] or '', standing[9] or '' }
end
local held, why, current = alive(node, proxy_epoch)
if not held then
  return { why, current }
end
if live then
  redis.call('HSET', pass, 'session', session)
  return { 'PASS', standing[1], standing[2] or '', standing[3] or '', standing[4] or '', standing[5] or '',
    standing[6] or '', standing[7] or '', standing[8] or '', standing[9] or '' }
end
if is_skewed(joined_at) or is_skewed(expires_at - pass_ms) then
  return { 'SKEW', now_text }
end
if kill_changed(ARGV[27], server, ARGV[29], link, ARGV[31]) then
  return { 'CONTROL' }
end
local killed = killed_by(ARGV[28], server, ARGV[30], link, ARGV[32])

local ticket = redis.call('HGET', tickets, player)
local seq, place_lane, holder = read_ticket(ticket)
local goes_at, in_line = redis.call('ZSCORE', away, player), redis.call('ZSCORE', line, player)
if goes_at and not in_line and (whole(goes_at) or 0) <= now then
  seq, place_lane = nil, nil
end
local mine = proxy .. ':' .. proxy_epoch
if holder and holder ~= mine and holder ~= ARGV[17] then
  return { 'NEED', holder }
end
local given_back = not seq and unspent and standing[12] == '1' and not standing[15]
if given_back then
  seq, place_lane = string.match(standing[8] or '', '^%d+$'), string.match(standing[9] or '', '^%d+$')
end
if seq and place_lane and whole(place_lane) ~= lane then
  return { 'LANE', place_lane }
end
seq = whole(seq)

local state = redis.call('HMGET', gate, 'bucket', 'refilled_at', 'seq', 'serial', 'paused', 'busy', 'recent', 'lanes',
  'full', 'lease')
local rate = gate_rate(fixed, each, roster, state[10])
local bucket, refilled_at = gate_bucket(state[1], state[2], rate, burst)
local last_seq, last_serial = last_given(state[3], lane_size - 1), last_given(state[4], 9007199254740991)

local waiting = redis.call('ZCARD', line)
-- One that was never given could be given again.
local restored = not seq and kept > 0 and kept <= math.max(last_seq, now)
if restored then
  seq = kept
end
local fresh = not seq
if fresh then
  seq = math.max(last_seq + 1, now)
end
local seq_text, lane_text = string.format('%.0f', seq), string.format('%.0f', lane)
local offered = server ~= '' or link ~= ''
-- Whether the offered node has a place, and whether its build names claims. Where none is wanted, yes.
local function has_place(id, node_key, held_key, due_key, epoch)
  if id == '' then
    return true, true
  end
  local places, _, claims = free(node_key, held_key, due_key, epoch)
  return places >= 1, claims
end
local fits, server_claims, link_claims =
  not ticket and waiting == 0 and offered and not killed and state[5] ~= '1' and bucket >= 1000000, nil, nil
if fits then
  fits, server_claims = has_place(server, server_node, server_held, server_due, ARGV[19])
end
if fits then
  fits, link_claims = has_place(link, link_node, link_held, link_due, ARGV[21])
end
if fits then
  local serial = string.format('%.0f', math.max(last_serial + 1, now_us))
  local held_for = server_claims and link_claims and string.format('%.0f', arrive_ms) or nil
  local claim = claim_of(player, name .. ':' .. serial, held_for)
  local place_goes = string.format('%.0f', now + arrive_ms)
  drop_stale_claims()
  redis.call('HSET', gate, 'bucket', string.format('%.0f', bucket - 1000000), 'refilled_at',
    string.format('%.0f', refilled_at), 'seq', string.format('%.0f', math.max(last_seq, seq)),
    'serial', serial)
  redis.call('DEL', pass)
  redis.call('HSET', pass, 'serial', serial, 'server', server, 'link', link, 'seq', seq_text, 'lane', lane_text,
    'expires_at', ARGV[22], 'op', op, 'v', ARGV[8], 'sig', ARGV[24], 'session', session, 'fails',
    unspent and standing[12] == '1' and standing[14] or '0')
  if held_for then
    redis.call('HSET', pass, 'held', held_for)
  end
  redis.call('PEXPIREAT', pass, ARGV[22])
  for _, target in ipairs({ { id = server, held = server_held }, { id = link, held = link_held } }) do
    if target.id ~= '' then
      redis.call('ZREMRANGEBYSCORE', target.held, '-inf', now_text)
      -- With the pass that goes, what it still holds under its own name.
      if standing[16] and not standing[10] then
        redis.call('ZREM', target.held, claim_of(player, name .. ':' .. (standing[1] or ''), standing[16]))
      end
      hold(target.held, claim, place_goes)
    end
  end
  redis.call('PUBLISH', ARGV[26], 'admitted ' .. name .. ' ' .. player)
  return { 'ADMITTED', serial, seq_text }
end
if fresh and redis.call('HLEN', tickets) >= max_waiting then
  return { 'FULL' }
end

local score = string.format('%.0f', lane * lane_size + seq)
local index = math.min(lane, #weights - 1)
local lengths = lane_lengths(line, #weights, waiting)
local rank = lane_rank(line, lane, seq, #weights)
if not in_line then
  lengths[index + 1] = lengths[index + 1] + 1
end
-- Looked at before anything is written, so that a key of another type changes nothing.
redis.call('SCARD', via)
redis.call('SCARD', old_via)
local busy, recent = state[6] or now_text, state[7] or ''
if waiting == 0 then
  busy, recent = now_text, ''
end
local answer = { 'WAITING', seq_text, lane_text, string.format('%.0f', rank),
  state[5] == '1' and '0' or string.format('%.0f', rate), busy, state[9] or '0', recent, state[8] or '' }
for _, length in ipairs(lengths) do
  answer[#answer + 1] = string.format('%.0f', length)
end

redis.call('HSET', tickets, player, ticket_text(seq_text, lane_text))
redis.call('ZADD', line, score, player)
redis.call('ZREM', away, player)
if holder and holder ~= mine then
  redis.call('SREM', old_via, player)
  unlist_empty(old_via, vias, holder)
end
redis.call('SADD', via, player)
redis.call('SADD', vias, mine)
if waiting == 0 then
  redis.call('SADD', lines, name)
  redis.call('HSET', gate, 'busy', busy, 'recent', '')
end
if fresh or restored then
  redis.call('HSET', gate, 'seq', string.format('%.0f', math.max(last_seq, seq)))
end
if given_back then
  redis.call('HSET', pass, 'failed_op', session)
end
if waiting == 0 then
  redis.call('PUBLISH', ARGV[26], 'entered ' .. name)
end
return answer
