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
local lines, line, tickets, away, gate = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local vias, via, node, pass, control, roster = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local old_via, server_node, server_held, server_due = KEYS[12], KEYS[13], KEYS[14], KEYS[15]
local link_node, link_held, link_due = KEYS[16], KEYS[17], KEYS[18]
local name, player, lane, proxy, proxy_epoch, session =
  ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]
local joined_at, max_waiting, pass_ms = tonumber(ARGV[7]), tonumber(ARGV[11]), tonumber(ARGV[16])
local fixed, each, burst = tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15])
local server, link, expires_at, op, arrive_ms = ARGV[18], ARGV[20], tonumber(ARGV[22]), ARGV[23], tonumber(ARGV[25])
local kept = tonumber(ARGV[33])
local weights = {}
for weight in string.gmatch(ARGV[12], '%d+') do
  weights[#weights + 1] = math.max(1, tonumber(weight))
end
if not (lane and joined_at and max_waiting and pass_ms and fixed and each and burst and expires_at and arrive_ms and kept)
  or #weights < 1 or #weights > 16 then
  return redis.error_reply('ARGUMENT queue/enter: lane, times, spans, rates and 1 to 16 weights are whole numbers')
end

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = math.floor(now_us / 1000)
local now_text = string.format('%.0f', now)
local lane_size = 4398046511104
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
-- Places that are neither taken, promised nor reserved; none of a node that takes nobody.
local function free(node_key, held_key, due_key, epoch)
  local row = redis.call('HMGET', node_key, 'epoch', 'beat_at', 'lease_ms', 'state', 'accepting', 'players', 'soft_cap')
  local beat_at, lease_ms = tonumber(row[2] or '') or 0, tonumber(row[3] or '') or 0
  if row[1] ~= epoch or now - beat_at > lease_ms or beat_at - now > lease_ms or row[5] ~= '1'
    or (row[4] ~= 'ready' and row[4] ~= 'degraded') then
    return 0
  end
  local promised = redis.call('ZCOUNT', held_key, '(' .. now_text, '+inf') + redis.call('ZCARD', due_key)
  local cap = tonumber(row[7] or '') or 0
  return cap == 0 and 1000000 or cap - (tonumber(row[6] or '') or 0) - promised
end

-- Promises of another line may last longer than this one's.
local function outlive(key)
  if redis.call('PTTL', key) < arrive_ms then
    redis.call('PEXPIRE', key, ARGV[25])
  end
end

-- A key of another type is no pass.
local standing = redis.pcall('HMGET', pass, 'serial', 'server', 'link', 'expires_at', 'op', 'v', 'sig', 'seq', 'lane',
  'redeemed_at', 'arrived_at', 'void', 'session', 'fails', 'failed_op')
local unspent = standing[1] and not standing[10] and now < (tonumber(standing[4] or '') or 0)
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
if math.abs(joined_at - now) > 5000 or math.abs(expires_at - pass_ms - now) > 5000 then
  return { 'SKEW', now_text }
end
local entries = {}
if ARGV[27] ~= '' or ARGV[29] ~= '' or ARGV[31] ~= '' or redis.call('EXISTS', control) == 1 then
  entries = redis.call('HMGET', control, 'kill', 'kill:' .. server, 'kill:' .. link)
end
if (entries[1] or '') ~= ARGV[27] or (entries[2] or '') ~= ARGV[29] or (entries[3] or '') ~= ARGV[31] then
  return { 'CONTROL' }
end
local killed = ARGV[28] == 'on' or ARGV[30] == 'on' or ARGV[32] == 'on'

local ticket = redis.call('HGET', tickets, player)
local seq, place_lane, holder_id, holder_epoch
if ticket then
  seq, place_lane, holder_id, holder_epoch = string.match(ticket, '^(%d+) (%d+) ([^ ]+) (%d+) ')
end
local holder = holder_id and holder_id .. ':' .. holder_epoch
local goes_at, in_line = redis.call('ZSCORE', away, player), redis.call('ZSCORE', line, player)
if goes_at and not in_line and tonumber(goes_at) <= now then
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
if seq and place_lane and tonumber(place_lane) ~= lane then
  return { 'LANE', place_lane }
end
seq = tonumber(seq or '')

local state = redis.call('HMGET', gate, 'bucket', 'refilled_at', 'seq', 'serial', 'paused', 'busy', 'recent', 'lanes',
  'full')
local rate = fixed
if fixed == 0 then
  rate = each * redis.call('ZCOUNT', roster, string.format('%.0f', now - 3000), string.format('%.0f', now + 3000))
end
local most = math.max(1, burst > 0 and burst or math.floor(rate / 4)) * 1000000
local bucket, refilled_at = tonumber(state[1] or ''), tonumber(state[2] or '')
-- In this form also for what is a number to Lua only: a gate of nan would never shut, or never open.
if not (bucket and bucket >= 0 and refilled_at and refilled_at <= now_us + 1000000) then
  bucket, refilled_at = 0, now_us
elseif now_us > refilled_at then
  bucket, refilled_at = bucket + (now_us - refilled_at) * rate, now_us
end
bucket = math.min(bucket, most)
-- A last number that no script can have given would be the end of all entering.
local function given(text, limit)
  local number = tonumber(text or '')
  return number and number >= 0 and number < limit and number or 0
end
local last_seq, last_serial = given(state[3], lane_size - 1), given(state[4], 9007199254740991)

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
if not ticket and waiting == 0 and offered and not killed and state[5] ~= '1' and bucket >= 1000000
  and (server == '' or free(server_node, server_held, server_due, ARGV[19]) >= 1)
  and (link == '' or free(link_node, link_held, link_due, ARGV[21]) >= 1) then
  local serial = string.format('%.0f', math.max(last_serial + 1, now_us))
  local place_goes = string.format('%.0f', now + arrive_ms)
  redis.call('HSET', gate, 'bucket', string.format('%.0f', bucket - 1000000), 'refilled_at',
    string.format('%.0f', refilled_at), 'seq', string.format('%.0f', math.max(last_seq, seq)),
    'serial', serial)
  redis.call('DEL', pass)
  redis.call('HSET', pass, 'serial', serial, 'server', server, 'link', link, 'seq', seq_text, 'lane', lane_text,
    'expires_at', ARGV[22], 'op', op, 'v', ARGV[8], 'sig', ARGV[24], 'session', session, 'fails',
    unspent and standing[12] == '1' and standing[14] or '0')
  redis.call('PEXPIREAT', pass, ARGV[22])
  if server ~= '' then
    redis.call('ZREMRANGEBYSCORE', server_held, '-inf', now_text)
    redis.call('ZADD', server_held, place_goes, player)
    outlive(server_held)
  end
  if link ~= '' then
    redis.call('ZREMRANGEBYSCORE', link_held, '-inf', now_text)
    redis.call('ZADD', link_held, place_goes, player)
    outlive(link_held)
  end
  redis.call('PUBLISH', ARGV[26], 'admitted ' .. name .. ' ' .. player)
  return { 'ADMITTED', serial, seq_text }
end
if fresh and redis.call('HLEN', tickets) >= max_waiting then
  return { 'FULL' }
end

local score = string.format('%.0f', lane * lane_size + seq)
local index = math.min(lane, #weights - 1)
local lengths = {}
for i = 0, #weights - 1 do
  local upper = i == #weights - 1 and '+inf' or '(' .. string.format('%.0f', (i + 1) * lane_size)
  lengths[i] = #weights == 1 and waiting or redis.call('ZCOUNT', line, string.format('%.0f', i * lane_size), upper)
end
local rank = redis.call('ZCOUNT', line, string.format('%.0f', index * lane_size), '(' .. score)
if not in_line then
  lengths[index] = lengths[index] + 1
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
for i = 0, #weights - 1 do
  answer[#answer + 1] = string.format('%.0f', lengths[i])
end

local text = table.concat({ seq_text, lane_text, proxy, proxy_epoch, session, ARGV[7], ARGV[8], ARGV[9], ARGV[10] }, ' ')
redis.call('HSET', tickets, player, text)
redis.call('ZADD', line, score, player)
redis.call('ZREM', away, player)
if holder and holder ~= mine then
  redis.call('SREM', old_via, player)
  if redis.call('EXISTS', old_via) == 0 then
    redis.call('SREM', vias, holder)
  end
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
