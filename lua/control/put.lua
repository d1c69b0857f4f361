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
local control = KEYS[1]
local name, entry, version, last, read, channel =
  ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], ARGV[6]
if not (version and last) then
  return redis.error_reply('ARGUMENT control/put: versions are whole numbers')
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local standing = redis.call('HGET', control, name) or ''
if standing == entry then
  return { 'PUT', string.format('%.0f', now) }
end
if standing ~= read then
  return { 'CHANGED', standing }
end
if version <= last or version < now - 1000 or version > math.max(now, last + 1) then
  return { 'VERSION', string.format('%.0f', math.max(last + 1, now)), string.format('%.0f', now) }
end

redis.call('HSET', control, name, entry)
redis.call('PUBLISH', channel, 'control ' .. name)
return { 'PUT', string.format('%.0f', now) }
