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
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local row_key, roster, roles, epochs = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, role, epoch, incarnation, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

-- part time
local time = redis.call('TIME')
-- Milliseconds cut out as text: cheaper than arithmetic and %.0f, and the same digits on every Lua.
local now_text = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now = tonumber(now_text)
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

local row = redis.call('HMGET', row_key, 'epoch', 'incarnation')
if row[1] and (row[1] ~= epoch or row[2] ~= incarnation) then
  return { 'FENCED', row[1] }
end
local last, _, holder = last_epoch(redis.call('HGET', epochs, id))
if not row[1] and (whole(last) or 0) > (whole(epoch) or 0) then
  return { 'FENCED', last }
end

local was_there = redis.call('ZREM', roster, id) + redis.call('DEL', row_key)
unlist_empty(roster, roles, role)
if was_there > 0 then
  redis.call('HSET', epochs, id, (last or epoch) .. ' ' .. now_text .. ' ' .. (holder or incarnation))
  redis.call('PUBLISH', channel, 'left ' .. id .. ' ' .. epoch)
end
return { 'LEFT' }
