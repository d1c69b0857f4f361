-- control/put: replaces one control entry (kill switch, drain, config) that is still the one its writer looked at.
--
-- KEYS 1 control  hash, name -> entry (JSON text)
-- ARGV 1 name, 2 entry (JSON text), 3 version of the new entry, 4 version of the last verified entry (0 for none),
--      5 bytes of the entry as read (empty for none), 6 channel
-- Answers PUT <now>            written
--         CHANGED <bytes>      another entry stands there: read, verify, decide again
--         VERSION <n> <now>    sign this version and ask again
-- Events  control <name>
-- Bound   one entry.
-- Repeat  an entry that stands there to the byte is answered PUT.
-- Example EVALSHA <sha> 1 maitred:{eu}:control kill {"value":"on","version":"1796000000000",...} 1796000000000 0 ""
--         maitred:{eu}:events:control
if #KEYS ~= 1 or #ARGV ~= 6 then
  return redis.error_reply('ARITY control/put takes 1 key and 6 arguments')
end
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local control = KEYS[1]
local name, entry, version, last, read, channel =
  ARGV[1], ARGV[2], whole(ARGV[3]), whole(ARGV[4]), ARGV[5], ARGV[6]
if not (version and last) then
  return redis.error_reply('ARGUMENT control/put: versions are whole numbers')
end

-- part time
local time = redis.call('TIME')
-- Milliseconds cut out as text: cheaper than arithmetic and %.0f, and the same digits on every Lua.
local now_text = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now = tonumber(now_text)
-- end part
-- part version
-- Whether a number may come after the last one: numbers grow with the clock, and never run ahead of it.
local function may_follow(proposed, last, behind_ms)
  return proposed > last and proposed >= now - behind_ms and proposed <= math.max(now, last + 1)
end
-- end part

local standing = redis.call('HGET', control, name) or ''
if standing == entry then
  return { 'PUT', now_text }
end
if standing ~= read then
  return { 'CHANGED', standing }
end
if not may_follow(version, last, 1000) then
  return { 'VERSION', string.format('%.0f', math.max(last + 1, now)), now_text }
end

redis.call('HSET', control, name, entry)
redis.call('PUBLISH', channel, 'control ' .. name)
return { 'PUT', now_text }
