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
local row_key, roster, roles, epochs, old_roster = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, role, addr, incarnation, seq = ARGV[1], ARGV[2], ARGV[3], ARGV[5], ARGV[6]
local replaces, lease_ms, old_role = ARGV[18], ARGV[20], ARGV[21]
local epoch, own, sent_at = tonumber(ARGV[4]), tonumber(ARGV[19]), tonumber(ARGV[7])
if not (epoch and own and sent_at and tonumber(seq) and tonumber(lease_ms)) then
  return redis.error_reply('ARGUMENT node/join: epoch, seq, sent_at, own epoch and lease are whole numbers')
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local now_text = string.format('%.0f', now)
local row = redis.call('HMGET', row_key, 'epoch', 'incarnation', 'beat_at', 'lease_ms', 'addr', 'role', 'seq')
local row_epoch = tonumber(row[1] or '') or 0
local mine = row[2] == incarnation
if mine and row_epoch == epoch and tonumber(seq) <= (tonumber(row[7] or '') or -1) then
  return { 'JOINED', now_text }
end
if math.abs(sent_at - now) > 5000 then
  return { 'SKEW', now_text }
end
local last, holder = 0, nil
local given = redis.call('HGET', epochs, id)
if given then
  last = tonumber(string.match(given, '^(%d+)') or '') or 0
  holder = string.match(given, '^%d+ %d+ (.+)$')
end
if row_epoch > last then
  last = row_epoch
end

if row[1] and not mine and row[2] ~= replaces then
  local beat_at, row_lease = tonumber(row[3] or '') or 0, tonumber(row[4] or '') or 0
  if math.abs(now - beat_at) <= row_lease then
    return { 'DUPLICATE', row[5] or '', string.format('%.0f', row_lease - (now - beat_at)), now_text }
  end
end

local floor = own + 1
local again = mine and row_epoch == epoch
local resumed = epoch > 0 and epoch == own and epoch == last and (mine or not row[1])
  and (holder or incarnation) == incarnation
local fresh = last < epoch and floor <= epoch and now - 1000 <= epoch and epoch <= math.max(now, last + 1, floor)
if not (again or resumed or fresh) then
  return { 'EPOCH', string.format('%.0f', math.max(last + 1, now, floor)), now_text }
end
if row[6] and row[6] ~= role and row[6] ~= old_role then
  return { 'NEED', row[6] }
end

if row[6] and row[6] ~= role then
  redis.call('ZREM', old_roster, id)
  if redis.call('EXISTS', old_roster) == 0 then
    redis.call('SREM', roles, old_role)
  end
end
redis.call('ZADD', roster, now_text, id)
redis.call('SADD', roles, role)
redis.call('HSET', epochs, id, ARGV[4] .. ' ' .. now_text .. ' ' .. incarnation)
redis.call('DEL', row_key)
redis.call('HSET', row_key, 'id', id, 'role', role, 'addr', addr, 'epoch', ARGV[4], 'incarnation', incarnation,
  'seq', seq, 'sent_at', ARGV[7], 'beat_at', now_text, 'lease_ms', lease_ms, 'state', ARGV[8], 'accepting', ARGV[9],
  'kill', ARGV[10], 'players', ARGV[11], 'soft_cap', ARGV[12], 'load', ARGV[13], 'services', ARGV[14],
  'labels', ARGV[15], 'v', ARGV[16], 'sig', ARGV[17])
redis.call('PEXPIRE', row_key, lease_ms)
redis.call('PUBLISH', ARGV[22], ARGV[23])
return { 'JOINED', now_text }
