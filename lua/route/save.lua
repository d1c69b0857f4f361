-- route/save: writes the bytes of an object, if the writer still owns it and nobody wrote since it read them.
--
-- KEYS 1 route:<kind>:<object>   hash
--      2 object:<kind>:<object>  hash
--      3 node:<node>             hash, the owner's row
-- ARGV 1 node, 2 epoch, 3 version, 4 sig of the record, 5 saved_at (store ms, the owner's estimate),
--      6 cas of what was read (0 for none), 7 cas of what is written, 8 data, 9 save_op, 10 v, 11 sig of the object
-- Answers SAVED                           the bytes are in the store, and the saved time is set
--         LOST <owner> <epoch> <version>  another record stands (owner empty: nobody's); nothing was written
--         CAS <n>                         the object is at another number; nothing was written
--         NO_LEASE                        the caller's row is gone
--         FENCED <epoch>                  the caller's epoch is over
-- Events  none
-- Bound   one row of each.
-- Repeat  the same save_op is answered SAVED while nobody saved after it and the caller owns the object.
-- Example EVALSHA <sha> 3 maitred:{eu}:route:island:i1 maitred:{eu}:object:island:i1 maitred:{eu}:node:b1
--         b1 1796000000000 1796000001000 5ebd00f2.xxx 1796000601000 0 1 {"n":1} op1 1 5ebd00f2.yyy
if #KEYS ~= 3 or #ARGV ~= 11 then
  return redis.error_reply('ARITY route/save takes 3 keys and 11 arguments')
end
local route, object, node = KEYS[1], KEYS[2], KEYS[3]
local epoch, version, cas, save_op = ARGV[2], ARGV[3], ARGV[6], ARGV[9]
if not (tonumber(ARGV[5]) and tonumber(cas) and tonumber(ARGV[7])) then
  return redis.error_reply('ARGUMENT route/save: saved_at and both cas are whole numbers')
end
local found = redis.call('HMGET', object, 'cas', 'save_op')
local current = redis.call('HGET', node, 'epoch')
local done = found[2] == save_op
local owned = redis.call('HGET', route, 'sig') == ARGV[4]
if not owned then
  local row = redis.call('HMGET', route, 'owner', 'owner_epoch', 'version')
  if row[1] ~= ARGV[1] or row[2] ~= epoch or row[3] ~= version then
    return { 'LOST', row[1] or '', row[2] or '0', row[3] or '0' }
  end
end
if done then
  return { 'SAVED' }
end
if not current then
  return { 'NO_LEASE' }
end
if current ~= epoch then
  return { 'FENCED', current }
end
if (found[1] or '0') ~= cas then
  return { 'CAS', found[1] or '0' }
end

redis.call('HSET', route, 'saved_at', ARGV[5])
redis.call('HSET', object, 'cas', ARGV[7], 'route_version', version, 'data', ARGV[8], 'save_op', save_op,
  'v', ARGV[10], 'sig', ARGV[11])
return { 'SAVED' }
