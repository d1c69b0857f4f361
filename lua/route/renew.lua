-- route/renew: says that the owner has saved an object whose bytes are the application's.
--
-- KEYS 1 route:<kind>:<object>  hash
--      2 node:<node>            hash, the owner's row
-- ARGV 1 node, 2 epoch, 3 version, 4 sig of the record, 5 saved_at (store ms, the owner's estimate)
-- Answers RENEWED                         the saved time is set
--         LOST <owner> <epoch> <version>  another record stands (owner empty: nobody's)
--         NO_LEASE                        the caller's row is gone
--         FENCED <epoch>                  the caller's epoch is over
-- Events  none
-- Bound   one row.
-- Repeat  the same saved time is written again.
-- Example EVALSHA <sha> 2 maitred:{eu}:route:island:i1 maitred:{eu}:node:b1
--         b1 1796000000000 1796000001000 5ebd00f2.xxx 1796000601000
if #KEYS ~= 2 or #ARGV ~= 5 then
  return redis.error_reply('ARITY route/renew takes 2 keys and 5 arguments')
end
local route, node = KEYS[1], KEYS[2]
local epoch = ARGV[2]
if not tonumber(ARGV[5]) then
  return redis.error_reply('ARGUMENT route/renew: saved_at is a whole number')
end
local current = redis.call('HGET', node, 'epoch')
if not current then
  return { 'NO_LEASE' }
end
if current ~= epoch then
  return { 'FENCED', current }
end
-- The signature stands for owner, epoch and version together, at the price of one field. It changes by itself only where
-- the record was signed again with a new secret; then the three are compared.
if redis.call('HGET', route, 'sig') ~= ARGV[4] then
  local row = redis.call('HMGET', route, 'owner', 'owner_epoch', 'version')
  if row[1] ~= ARGV[1] or row[2] ~= epoch or row[3] ~= ARGV[3] then
    return { 'LOST', row[1] or '', row[2] or '0', row[3] or '0' }
  end
end

redis.call('HSET', route, 'saved_at', ARGV[5])
return { 'RENEWED' }
