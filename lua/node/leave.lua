-- node/leave: takes a node's row and roster entry away at once and tells everyone.
--
-- KEYS 1 node:<id>     hash, the row
--      2 nodes:<role>  zset, the roster of the role
--      3 roles         set, the roles that have a roster
--      4 epochs        hash, id -> "<last epoch> <last seen ms> <its incarnation>"
-- ARGV 1 id, 2 role, 3 epoch, 4 incarnation, 5 channel
-- Answers LEFT            gone (also when it was gone before)
--         FENCED <epoch>  another incarnation holds the id, or was the last to; nothing was changed
-- Events  left <id> <epoch>
-- Bound   one row.
-- Repeat  without a row it answers LEFT and changes only an entry of the roster that nobody holds.
-- Example EVALSHA <sha> 4 maitred:{eu}:node:p1 maitred:{eu}:nodes:proxy maitred:{eu}:roles maitred:{eu}:epochs
--         p1 proxy 1796000000000 inc1 maitred:{eu}:events:node
if #KEYS ~= 4 or #ARGV ~= 5 then
  return redis.error_reply('ARITY node/leave takes 4 keys and 5 arguments')
end
local row_key, roster, roles, epochs = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, role, epoch, incarnation, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local row = redis.call('HMGET', row_key, 'epoch', 'incarnation')
if row[1] and (row[1] ~= epoch or row[2] ~= incarnation) then
  return { 'FENCED', row[1] }
end
local given = redis.call('HGET', epochs, id)
local last = given and string.match(given, '^(%d+)')
local holder = given and string.match(given, '^%d+ %d+ (.+)$')
if not row[1] and (tonumber(last or '') or 0) > (tonumber(epoch) or 0) then
  return { 'FENCED', last }
end

local was_there = redis.call('ZREM', roster, id) + redis.call('DEL', row_key)
if redis.call('EXISTS', roster) == 0 then
  redis.call('SREM', roles, role)
end
if was_there > 0 then
  redis.call('HSET', epochs, id, (last or epoch) .. ' ' .. string.format('%.0f', now) .. ' ' .. (holder or incarnation))
  redis.call('PUBLISH', channel, 'left ' .. id .. ' ' .. epoch)
end
return { 'LEFT' }
