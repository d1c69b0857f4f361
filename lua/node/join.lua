-- node/join: gives a process the row, the roster entry and the epoch of a node id, or says who holds the id.
--
-- KEYS 1 node:<id>     hash, the row
--      2 nodes:<role>  zset, the roster of the role
--      3 roles         set, the roles that have a roster
--      4 epochs        hash, id -> "<last epoch> <last seen ms> <its incarnation>"
--      5 nodes:<role>  zset, the roster of the role that a row taken over had (the same as 2 where there is none)
-- ARGV 1 id, 2 role, 3 addr, 4 epoch (proposed), 5 incarnation, 6 seq, 7 sent_at (store ms), 8 state, 9 accepting,
--      10 kill, 11 players, 12 soft_cap, 13 load (JSON), 14 services (JSON), 15 labels (JSON), 16 v, 17 sig,
--      18 replaces (incarnation whose live row may be taken over, or empty),
--      19 own epoch (the last one this process had, 0 for none), 20 lease ms, 21 role behind KEYS 5,
--      22 channel, 23 event (the row in wire form)
-- Answers JOINED <now>                           the row is written
--         EPOCH <epoch> <now>                    sign this epoch and ask again
--         DUPLICATE <addr> <lease left ms> <now> another live process holds the id
--         SKEW <now>                             sent_at is off by more than 5 s
--         NEED <role>                            the roster of that role has to be in KEYS 5
-- Events  the row in wire form
-- Bound   one row.
-- Repeat  the same incarnation with the same epoch is answered JOINED; a number not above the row's writes nothing.
-- Example EVALSHA <sha> 5 maitred:{eu}:node:p1 maitred:{eu}:nodes:proxy maitred:{eu}:roles maitred:{eu}:epochs
--         maitred:{eu}:nodes:proxy p1 proxy 10.0.0.1:25577 1796000000000 inc1 0 1796000000000 starting 0 0 0 0 {} [] {}
--         1 5ebd00f2.xxx "" 0 3500 proxy maitred:{eu}:events:node row
if #KEYS ~= 5 or #ARGV ~= 23 then
  return redis.error_reply('ARITY node/join takes 5 keys and 23 arguments')
end
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local row_key, roster, roles, epochs, old_roster = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, role, addr, incarnation, seq = ARGV[1], ARGV[2], ARGV[3], ARGV[5], ARGV[6]
local replaces, lease_ms, old_role = ARGV[18], ARGV[20], ARGV[21]
local epoch, own, sent_at = whole(ARGV[4]), whole(ARGV[19]), whole(ARGV[7])
if not (epoch and own and sent_at and whole(seq) and whole(lease_ms)) then
  return redis.error_reply('ARGUMENT node/join: epoch, seq, sent_at, own epoch and lease are whole numbers')
end

-- part time
local time = redis.call('TIME')
-- Milliseconds cut out as text: cheaper than arithmetic and %.0f, and the same digits on every Lua.
local now_text = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now = tonumber(now_text)
-- end part
-- part skew
-- Whether the clock that a signed time came from is not the store's.
local function is_skewed(signed_at)
  return math.abs(signed_at - now) > 5000
end
-- end part
-- part lease
-- How long a node's lease lasts still, in ms: below 0 it is over, and so it is where the row is not in order. A beat that
-- seems to come is from before the clock stepped back (R-34).
local function lease_left(beat_at, lease_ms)
  return (whole(lease_ms) or 0) - math.abs(now - (whole(beat_at) or 0))
end
-- end part
-- part version
-- Whether a number may come after the last one: numbers grow with the clock, and never run ahead of it.
local function may_follow(proposed, last, behind_ms)
  return proposed > last and proposed >= now - behind_ms and proposed <= math.max(now, last + 1)
end
-- end part
-- part epochs
-- An entry of `epochs`: the last epoch of an id, when it was last seen, and the incarnation that had it.
local function last_epoch(entry)
  local epoch_text, seen_text = string.match(entry or '', '^(%d+) ?(%d*)')
  return epoch_text, seen_text, string.match(entry or '', '^%d+ %d+ (.+)$')
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

local row = redis.call('HMGET', row_key, 'epoch', 'incarnation', 'beat_at', 'lease_ms', 'addr', 'role', 'seq')
local row_epoch = whole(row[1]) or 0
local mine = row[2] == incarnation
if mine and row_epoch == epoch and whole(seq) <= (whole(row[7]) or -1) then
  return { 'JOINED', now_text }
end
if is_skewed(sent_at) then
  return { 'SKEW', now_text }
end
local given, _, holder = last_epoch(redis.call('HGET', epochs, id))
local last = math.max(whole(given) or 0, row_epoch)

if row[1] and not mine and row[2] ~= replaces then
  local left = lease_left(row[3], row[4])
  if left >= 0 then
    return { 'DUPLICATE', row[5] or '', string.format('%.0f', left), now_text }
  end
end

local again = mine and row_epoch == epoch
local resumed = epoch > 0 and epoch == own and epoch == last and (mine or not row[1])
  and (holder or incarnation) == incarnation
last = math.max(last, own)
if not (again or resumed or may_follow(epoch, last, 1000)) then
  return { 'EPOCH', string.format('%.0f', math.max(now, last + 1)), now_text }
end
if row[6] and row[6] ~= role and row[6] ~= old_role then
  return { 'NEED', row[6] }
end

if row[6] and row[6] ~= role then
  redis.call('ZREM', old_roster, id)
  unlist_empty(old_roster, roles, old_role)
end
redis.call('ZADD', roster, now_text, id)
redis.call('SADD', roles, role)
redis.call('HSET', epochs, id, ARGV[4] .. ' ' .. now_text .. ' ' .. incarnation)
redis.call('DEL', row_key)
redis.call('HSET', row_key, 'id', id, 'role', role, 'addr', addr, 'epoch', ARGV[4], 'incarnation', incarnation,
  'seq', seq, 'sent_at', ARGV[7], 'beat_at', now_text, 'lease_ms', lease_ms, 'state', ARGV[8], 'accepting', ARGV[9],
  'kill', ARGV[10], 'players', ARGV[11], 'soft_cap', ARGV[12], 'load', ARGV[13], 'services', ARGV[14],
  'labels', ARGV[15], 'v', ARGV[16], 'sig', ARGV[17], 'claims', '1')
redis.call('PEXPIRE', row_key, lease_ms)
redis.call('PUBLISH', ARGV[22], ARGV[23])
return { 'JOINED', now_text }
