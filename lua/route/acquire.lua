-- route/acquire: makes a node the owner of an object that nobody owns any more, or says who owns it.
--
-- KEYS 1 route:<kind>:<object>  hash
--      2 node:<node>            hash, the caller's row
--      3 owned:<node>           set, the objects of the caller
--      4 owned                  set, the nodes that have an owned: set
--      5 node:<owner>           hash, the row of ARGV 9 (KEYS 2 again where none is known)
--      6 owned:<owner>          set, the objects of ARGV 9 (KEYS 3 again where none is known)
-- ARGV 1 <kind>:<object>, 2 node, 3 epoch, 4 version (proposed), 5 v, 6 sig, 7 lockTimeoutMs,
--      8 fenced (1: a gone lease of the owner suffices, 0: the lock timeout has to pass), 9 owner behind KEYS 5 (or empty)
-- Answers ACQUIRED <version>               the caller owns it
--         OWNED <owner> <epoch> <version>  another node does
--         VERSION <n> <now>                sign this version and ask again
--         NO_LEASE                         the caller's row is gone
--         FENCED <epoch>                   the caller's epoch is over
--         NEED <owner>                     the keys of that owner have to be passed
-- Events  none
-- Bound   one row.
-- Repeat  the owner in its epoch is answered ACQUIRED with the version that stands; at most its saved time is renewed.
-- Example EVALSHA <sha> 6 maitred:{eu}:route:island:i1 maitred:{eu}:node:b1 maitred:{eu}:owned:b1 maitred:{eu}:owned
--         maitred:{eu}:node:b1 maitred:{eu}:owned:b1 island:i1 b1 1796000000000 1796000001000 1 5ebd00f2.xxx 1500000 1 ""
if #KEYS ~= 6 or #ARGV ~= 9 then
  return redis.error_reply('ARITY route/acquire takes 6 keys and 9 arguments')
end
local route, node, owned, owners, owner_node, owner_owned = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local member, id, epoch, version, lock_timeout = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[7])
if not (version and lock_timeout) then
  return redis.error_reply('ARGUMENT route/acquire: version and lockTimeoutMs are whole numbers')
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local row, mine = {}, false
local standing = redis.call('HGET', route, 'version')
-- Most objects that are acquired have no record, and to ask for one field of nothing is cheaper than for five.
if standing then
  row = redis.call('HMGET', route, 'owner', 'owner_epoch', 'saved_at', 'state')
  mine = row[1] == id and row[2] == epoch
  if mine and standing == ARGV[4] and row[4] == 'OWNED' then
    return { 'ACQUIRED', standing }
  end
end
-- The caller's own row is there for a lease at the longest; whoever asks for the object next looks at its beat as well.
local current = redis.call('HGET', node, 'epoch')
if not current then
  return { 'NO_LEASE' }
end
if current ~= epoch then
  return { 'FENCED', current }
end
if mine then
  redis.call('HSET', route, 'saved_at', string.format('%.0f', now), 'state', 'OWNED')
  return { 'ACQUIRED', standing }
end
local owner, last = row[1] or '', tonumber(standing or '') or 0
if owner ~= '' then
  local gone = owner == id
  if not gone then
    if owner ~= ARGV[9] then
      return { 'NEED', owner }
    end
    local lease = redis.call('HMGET', owner_node, 'epoch', 'beat_at', 'lease_ms')
    gone = lease[1] ~= row[2] or math.abs(now - (tonumber(lease[2]) or 0)) > (tonumber(lease[3]) or 0)
  end
  local silent = math.abs(now - (tonumber(row[3] or '') or 0)) > lock_timeout
  if not silent and not (gone and ARGV[8] == '1') then
    return { 'OWNED', owner, row[2] or '0', standing }
  end
end
if version <= last or version < now - 1000 or version > math.max(now, last + 1) then
  return { 'VERSION', string.format('%.0f', math.max(now, last + 1)), string.format('%.0f', now) }
end

local saved_at = ARGV[4]
if version > now then
  saved_at = string.format('%.0f', now)
end
redis.call('SADD', owned, member)
redis.call('SADD', owners, id)
if owner ~= '' and owner ~= id then
  redis.call('SREM', owner_owned, member)
  if redis.call('EXISTS', owner_owned) == 0 then
    redis.call('SREM', owners, owner)
  end
end
if standing and owner == '' then
  -- A free record runs out; an owned one does not.
  redis.call('DEL', route)
end
redis.call('HSET', route, 'owner', id, 'owner_epoch', epoch, 'version', ARGV[4], 'saved_at', saved_at,
  'state', 'OWNED', 'v', ARGV[5], 'sig', ARGV[6])
return { 'ACQUIRED', ARGV[4] }
