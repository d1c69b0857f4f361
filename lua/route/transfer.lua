-- route/transfer: the owner of an object makes another live node its owner.
--
-- KEYS 1 route:<kind>:<object>  hash
--      2 owned:<node>           set, the objects of the owner
--      3 owned                  set, the nodes that have an owned: set
--      4 node:<target>          hash, the target's row
--      5 owned:<target>         set, the objects of the target
-- ARGV 1 <kind>:<object>, 2 node, 3 epoch, 4 version, 5 sig of the record, 6 target, 7 target_epoch,
--      8 version of the new record (proposed), 9 v, 10 sig of the new record
-- Answers MOVED                           the target owns it
--         LOST <owner> <epoch> <version>  another record stands (owner empty: nobody's); nothing was changed
--         TARGET_GONE                     the target's lease or epoch is gone; nothing was changed
--         VERSION <n> <now>               sign this version and ask again
-- Events  none
-- Bound   one row.
-- Repeat  a record of the target, its epoch and that version is answered MOVED.
-- Example EVALSHA <sha> 5 maitred:{eu}:route:island:i1 maitred:{eu}:owned:b1 maitred:{eu}:owned maitred:{eu}:node:b2
--         maitred:{eu}:owned:b2 island:i1 b1 1796000000000 1796000001000 5ebd00f2.xxx b2 1796000000001 1796000601000 1
--         5ebd00f2.zzz
if #KEYS ~= 5 or #ARGV ~= 10 then
  return redis.error_reply('ARITY route/transfer takes 5 keys and 10 arguments')
end
local route, owned, owners, target_node, target_owned = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local member, id, epoch, target, target_epoch = ARGV[1], ARGV[2], ARGV[3], ARGV[6], ARGV[7]
local held, version = tonumber(ARGV[4]), tonumber(ARGV[8])
if not (held and version) then
  return redis.error_reply('ARGUMENT route/transfer: versions are whole numbers')
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local row = redis.call('HMGET', route, 'owner', 'owner_epoch', 'version')
if row[1] == target and row[2] == target_epoch and row[3] == ARGV[8] then
  return { 'MOVED' }
end
if redis.call('HGET', route, 'sig') ~= ARGV[5] and (row[1] ~= id or row[2] ~= epoch or row[3] ~= ARGV[4]) then
  return { 'LOST', row[1] or '', row[2] or '0', row[3] or '0' }
end
local lease = redis.call('HMGET', target_node, 'epoch', 'beat_at', 'lease_ms')
if lease[1] ~= target_epoch or math.abs(now - (tonumber(lease[2]) or 0)) > (tonumber(lease[3]) or 0) then
  return { 'TARGET_GONE' }
end
if version <= held or version < now - 1000 or version > math.max(now, held + 1) then
  return { 'VERSION', string.format('%.0f', math.max(now, held + 1)), string.format('%.0f', now) }
end

redis.call('SREM', owned, member)
if redis.call('EXISTS', owned) == 0 then
  redis.call('SREM', owners, id)
end
redis.call('SADD', target_owned, member)
redis.call('SADD', owners, target)
redis.call('HSET', route, 'owner', target, 'owner_epoch', target_epoch, 'version', ARGV[8],
  'saved_at', string.format('%.0f', now), 'state', 'MOVED', 'v', ARGV[9], 'sig', ARGV[10])
return { 'MOVED' }
