-- node/remove: takes nodes that have been silent for the removed age off a roster, and heals entries of another role.
--
-- KEYS 1 nodes:<role>  zset, the roster
--      2 roles         set, the roles that have a roster
--      3 epochs        hash, id -> "<last epoch> <last seen ms> <its incarnation>"
--      4.. node:<id>   hash, one row an id, in the order of ARGV 4..
-- ARGV 1 role, 2 removed age ms, 3 channel, 4.. ids (1 to 256, or none: then only an empty roster is taken off roles)
-- Answers REMOVED <n> <id>...  the ids that were taken off
-- Events  removed <id>
-- Bound   256 ids a call.
-- Repeat  an id that is gone already is passed over.
-- Example EVALSHA <sha> 4 maitred:{eu}:nodes:proxy maitred:{eu}:roles maitred:{eu}:epochs maitred:{eu}:node:p1
--         proxy 600000 maitred:{eu}:events:node p1
local count = #ARGV - 3
if count < 0 or count > 256 or #KEYS ~= count + 3 then
  return redis.error_reply('ARITY node/remove takes 3 keys and 3 arguments, and one of each for up to 256 ids')
end
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local roster, roles, epochs = KEYS[1], KEYS[2], KEYS[3]
local role, removed_ms, channel = ARGV[1], whole(ARGV[2]), ARGV[3]
if not removed_ms then
  return redis.error_reply('ARGUMENT node/remove: the removed age is a whole number')
end

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

local going = {}
for i = 1, count do
  local id = ARGV[3 + i]
  local score = redis.call('ZSCORE', roster, id)
  if score then
    local row = redis.call('HMGET', KEYS[3 + i], 'role', 'id')
    local elsewhere = row[1] and row[1] ~= role
    local silent = not row[1] and math.abs(now - (whole(score) or 0)) >= removed_ms
    if elsewhere or silent then
      going[#going + 1] = { id, silent, redis.call('HGET', epochs, id) }
    end
  end
end

local answer = { 'REMOVED', tostring(#going) }
for _, entry in ipairs(going) do
  redis.call('ZREM', roster, entry[1])
  if entry[2] then
    local last, _, holder = last_epoch(entry[3])
    redis.call('HSET', epochs, entry[1], (last or '0') .. ' ' .. now_text .. (holder and ' ' .. holder or ''))
    redis.call('PUBLISH', channel, 'removed ' .. entry[1])
  end
  answer[#answer + 1] = entry[1]
end
unlist_empty(roster, roles, role)
return answer
