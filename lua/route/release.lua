-- route/release: the owner of an object gives it up.
--
-- KEYS 1 route:<kind>:<object>   hash
--      2 owned:<node>            set, the objects of the owner
--      3 owned                   set, the nodes that have an owned: set
--      4 object:<kind>:<object>  hash
-- ARGV 1 <kind>:<object>, 2 node, 3 epoch, 4 version, 5 sig of the record, 6 version of the free record (proposed), 7 v,
--      8 sig of the free record, 9 how long the free record stays (ms), 10 delete (1: the object's bytes go as well)
-- Answers RELEASED                        nobody owns it
--         LOST <owner> <epoch> <version>  another record stands (owner empty: nobody's); nothing was changed
--         VERSION <n> <now>               sign this version and ask again
-- Events  none
-- Bound   one row.
-- Repeat  a free record of that version is answered RELEASED, with delete only where the object's bytes are gone.
-- Example EVALSHA <sha> 4 maitred:{eu}:route:island:i1 maitred:{eu}:owned:b1 maitred:{eu}:owned
--         maitred:{eu}:object:island:i1 island:i1 b1 1796000000000 1796000001000 5ebd00f2.xxx 1796000601000 1 5ebd00f2.zzz
--         60000 0
if #KEYS ~= 4 or #ARGV ~= 10 then
  return redis.error_reply('ARITY route/release takes 4 keys and 10 arguments')
end
local route, owned, owners, object = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local epoch, held, version = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[6])
if not (held and version and tonumber(ARGV[9])) then
  return redis.error_reply('ARGUMENT route/release: versions and times are whole numbers')
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
if redis.call('HGET', route, 'sig') ~= ARGV[5] then
  local row = redis.call('HMGET', route, 'owner', 'owner_epoch', 'version')
  -- Bytes that are there still say that it was another release, and that whoever asks has deleted nothing.
  if row[1] == '' and row[3] == ARGV[6] and (ARGV[10] ~= '1' or redis.call('EXISTS', object) == 0) then
    return { 'RELEASED' }
  end
  if row[1] ~= ARGV[2] or row[2] ~= epoch or row[3] ~= ARGV[4] then
    return { 'LOST', row[1] or '', row[2] or '0', row[3] or '0' }
  end
end
if version <= held or version < now - 1000 or version > math.max(now, held + 1) then
  return { 'VERSION', string.format('%.0f', math.max(now, held + 1)), string.format('%.0f', now) }
end

redis.call('SREM', owned, ARGV[1])
if redis.call('EXISTS', owned) == 0 then
  redis.call('SREM', owners, ARGV[2])
end
redis.call('HSET', route, 'owner', '', 'owner_epoch', '0', 'version', ARGV[6], 'state', 'FREE', 'v', ARGV[7],
  'sig', ARGV[8])
redis.call('PEXPIRE', route, ARGV[9])
if ARGV[10] == '1' then
  redis.call('DEL', object)
end
return { 'RELEASED' }
