-- queue/failed: puts a player whose transfer failed back where the pass was made, or out after too many failures.
--
-- KEYS 1 lines                        set, the lines that hold tickets
--      2 line:<line>                  zset, player -> lane * 2^42 + sequence
--      3 tickets:<line>               hash, player -> ticket
--      4 away:<line>                  zset, player -> when the place goes
--      5 vias:<line>                  set, the holders that have a via: set
--      6 via:<line>:<proxy>:<epoch>   set, players whose ticket the caller holds
--      7 node:<proxy>                 hash, the caller's row
--      8 pass:<line>:<player>         hash
--      9 held:<server>                zset, of ARGV 13 (KEYS 4 where there is none)
--      10 held:<link>                 zset, of ARGV 14 (KEYS 4 where there is none)
--      11 gate:<line>                 hash
-- ARGV 1 line, 2 player, 3 lane (as signed), 4 proxy, 5 proxy_epoch, 6 session, 7 joined_at (store ms), 8 v, 9 sig,
--      10 attributes, 11 serial of the pass, 12 graceMs (above 0: the player is gone, the place is kept for that long;
--      0: the player is here), 13 server of the pass (empty for none), 14 its link (empty for none), 15 most failures,
--      16 channel, 17 visit that the pass was given to (empty: whichever)
-- Answers BACK <seq> <lane>         first of those behind that place
--         AWAY <seq> <lane>         the place is kept for graceMs
--         OUT                       that was one failure too many
--         LATE                      another pass or ticket stands, or none, or another visit has taken the pass over
--         LANDED                    the pass was redeemed
--         LANE <lane>               the place is in that lane: sign it and ask again
--         NEED <server> <link>      the held: keys of these have to be passed
--         NO_LEASE                  the caller's row is gone or too old
--         FENCED <epoch>            the caller's epoch is over
--         SKEW <now>                joined_at is off by more than 5 s
-- Events  entered <line>, left <line> <player>
-- Bound   one player.
-- Repeat  the same session gives the same answer while its ticket or the pass stands.
-- Example EVALSHA <sha> 11 maitred:{eu}:lines maitred:{eu}:line:login maitred:{eu}:tickets:login maitred:{eu}:away:login
--         maitred:{eu}:vias:login maitred:{eu}:via:login:p1:1796000000000 maitred:{eu}:node:p1
--         maitred:{eu}:pass:login:alice maitred:{eu}:held:b1 maitred:{eu}:away:login maitred:{eu}:gate:login login alice 0
--         p1 1796000000000 s2 1796000001000 1 5ebd00f2.xxx "" 1796000000000000 0 b1 "" 3 maitred:{eu}:events:line
--         s1
if #KEYS ~= 11 or #ARGV ~= 17 then
  return redis.error_reply('ARITY queue/failed takes 11 keys and 17 arguments')
end
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local lines, line, tickets, away, vias, via = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local node, pass, server_held, link_held, gate = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local name, player, lane, proxy, proxy_epoch, session =
  ARGV[1], ARGV[2], whole(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]
local joined_at, grace_ms, most = whole(ARGV[7]), whole(ARGV[12]), whole(ARGV[15])
if not (lane and joined_at and grace_ms and most) then
  return redis.error_reply('ARGUMENT queue/failed: lane, times and counts are whole numbers')
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
-- part claim
-- Who holds a place (R-40): the player, what the place was promised by, how long it lasts in ms, blanks between. A build
-- that does not know this names the player alone, and leaves no such time behind.
local function claim_of(player, promised_by, lasts)
  return lasts and player .. ' ' .. promised_by .. ' ' .. lasts or player
end
-- end part
-- part ticket_text
-- The ticket that the caller signed, at the place where the player stands; read_ticket reads it.
local function ticket_text(seq_text, lane_text)
  return table.concat({ seq_text, lane_text, proxy, proxy_epoch, session, ARGV[7], ARGV[8], ARGV[9], ARGV[10] }, ' ')
end
-- end part

local standing = redis.call('HMGET', pass, 'serial', 'server', 'link', 'seq', 'lane', 'redeemed_at', 'void', 'fails',
  'failed_op', 'session', 'held')
local seq, place_lane = standing[4] or '0', standing[5] or '0'
local same = standing[1] and standing[1] == ARGV[11]
if same and standing[9] == session then
  if standing[7] == 'out' then
    return { 'OUT' }
  end
  return { grace_ms > 0 and 'AWAY' or 'BACK', seq, place_lane }
end

local held, why, current = alive(node, proxy_epoch)
if not held then
  return { why, current }
end
if not same or standing[9] or redis.call('HGET', tickets, player) then
  return { 'LATE' }
end
if standing[6] then
  return { 'LANDED' }
end
-- The player came back over another connection, was answered with the same pass, and may be on the way with it.
if ARGV[17] ~= '' and standing[10] and standing[10] ~= ARGV[17] then
  return { 'LATE' }
end
if is_skewed(joined_at) then
  return { 'SKEW', now_text }
end
if whole(place_lane) ~= lane then
  return { 'LANE', place_lane }
end
if (standing[2] or '') ~= ARGV[13] or (standing[3] or '') ~= ARGV[14] then
  return { 'NEED', standing[2] or '', standing[3] or '' }
end
-- A pass whose place was gone did not fail by the player's doing.
local fails = (whole(standing[8]) or 0) + (standing[7] and 0 or 1)
local place = whole(seq) or 0
local waiting = redis.call('ZCARD', line)
-- Looked at before anything is written, so that a key of another type changes nothing.
redis.call('SCARD', via)
redis.call('ZCARD', away)
redis.call('ZCARD', server_held)
redis.call('ZCARD', link_held)
redis.call('HGET', gate, 'busy')

local claim = claim_of(player, name .. ':' .. standing[1], standing[11])
redis.call('ZREM', server_held, claim)
redis.call('ZREM', link_held, claim)
if fails >= most then
  redis.call('HSET', pass, 'void', 'out', 'fails', string.format('%.0f', fails), 'failed_op', session)
  redis.call('PUBLISH', ARGV[16], 'left ' .. name .. ' ' .. player)
  return { 'OUT' }
end
redis.call('HSET', pass, 'void', '1', 'fails', string.format('%.0f', fails), 'failed_op', session)
redis.call('HSET', tickets, player, ticket_text(seq, place_lane))
redis.call('SADD', lines, name)
if grace_ms > 0 then
  redis.call('ZADD', away, string.format('%.0f', now + grace_ms), player)
  return { 'AWAY', seq, place_lane }
end
redis.call('ZADD', line, string.format('%.0f', lane * lane_size + place), player)
redis.call('SADD', via, player)
redis.call('SADD', vias, proxy .. ':' .. proxy_epoch)
if waiting == 0 then
  redis.call('HSET', gate, 'busy', now_text, 'recent', '')
end
redis.call('PUBLISH', ARGV[16], 'entered ' .. name)
return { 'BACK', seq, place_lane }
