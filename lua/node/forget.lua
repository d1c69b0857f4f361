-- node/forget: drops the last epoch of ids that nobody has seen for a day and that are on no roster.
--
-- KEYS 1 epochs        hash, id -> "<last epoch> <last seen ms> <its incarnation>"
--      2 roles         set, the roles that have a roster
--      3.. nodes:<role> zset, one roster for each role of ARGV 3..
-- ARGV 1 forget age ms, 2 number of roles, then the roles (0 to 32), then pairs of id and the bytes of its entry as read
--      (up to 64 pairs)
-- Answers FORGOTTEN <n>  entries dropped
--         NEED <role>    a roster exists that was not declared
-- Events  none
-- Bound   64 ids and 32 roles a call.
-- Repeat  an entry that is gone or has changed is passed over.
-- Example EVALSHA <sha> 3 maitred:{eu}:epochs maitred:{eu}:roles maitred:{eu}:nodes:proxy 86400000 1 proxy p9
--         "1796000000000 1796000000000 inc1"

-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local role_count = whole(ARGV[2])
if not role_count or role_count > 32 or #KEYS ~= role_count + 2 or #ARGV < role_count + 2
  or (#ARGV - 2 - role_count) % 2 ~= 0 or #ARGV - 2 - role_count > 128 then
  return redis.error_reply('ARITY node/forget takes 2 keys and a roster a role, and 2 arguments, the roles and pairs')
end
local epochs, roles = KEYS[1], KEYS[2]
local forget_ms = whole(ARGV[1])
if not forget_ms then
  return redis.error_reply('ARGUMENT node/forget: the forget age is a whole number')
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

local declared = {}
for i = 1, role_count do
  declared[ARGV[2 + i]] = true
end
if redis.call('SCARD', roles) > 32 then
  return { 'FORGOTTEN', '0' }
end
for _, role in ipairs(redis.call('SMEMBERS', roles)) do
  if not declared[role] then
    return { 'NEED', role }
  end
end
local going = {}
for i = 3 + role_count, #ARGV, 2 do
  local id, bytes = ARGV[i], ARGV[i + 1]
  local _, seen_at = last_epoch(bytes)
  local seen = whole(seen_at)
  local listed = false
  for k = 3, #KEYS do
    if redis.call('ZSCORE', KEYS[k], id) then
      listed = true
    end
  end
  if not listed and seen and now - seen >= forget_ms and redis.call('HGET', epochs, id) == bytes then
    going[#going + 1] = id
  end
end

for _, id in ipairs(going) do
  redis.call('HDEL', epochs, id)
end
return { 'FORGOTTEN', tostring(#going) }
