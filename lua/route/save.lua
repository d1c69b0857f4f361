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
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local route, object, node = KEYS[1], KEYS[2], KEYS[3]
local epoch, version, cas, save_op = ARGV[2], ARGV[3], ARGV[6], ARGV[9]
if not (whole(ARGV[5]) and whole(cas) and whole(ARGV[7])) then
  return redis.error_reply('ARGUMENT route/save: saved_at and both cas are whole numbers')
end

-- part fence
-- Whether the node's row is of that epoch; if not, the answer that its own call gets. The row is there for a lease at the
-- longest, so its beat is not looked at.
local function holds_epoch(key, epoch)
  local standing = redis.call('HGET', key, 'epoch')
  if not standing then
    return false, 'NO_LEASE'
  end
  return standing == epoch, 'FENCED', standing
end
-- end part
-- part owner
-- The record of the route, where it is not the caller's. The signature stands for owner, epoch and version together, at the
-- price of one field; it changes by itself only where the record was signed again with a new secret.
local function other_record(sig, owner, owner_epoch, owner_version)
  if redis.call('HGET', route, 'sig') == sig then
    return nil
  end
  local row = redis.call('HMGET', route, 'owner', 'owner_epoch', 'version')
  if row[1] == owner and row[2] == owner_epoch and row[3] == owner_version then
    return nil
  end
  return { row[1] or '', row[2] or '0', row[3] or '0' }
end
-- end part

local found = redis.call('HMGET', object, 'cas', 'save_op')
local other = other_record(ARGV[4], ARGV[1], epoch, version)
if other then
  return { 'LOST', other[1], other[2], other[3] }
end
if found[2] == save_op then
  return { 'SAVED' }
end
local held, why, current = holds_epoch(node, epoch)
if not held then
  return { why, current }
end
if (found[1] or '0') ~= cas then
  return { 'CAS', found[1] or '0' }
end

redis.call('HSET', route, 'saved_at', ARGV[5])
redis.call('HSET', object, 'cas', ARGV[7], 'route_version', version, 'data', ARGV[8], 'save_op', save_op,
  'v', ARGV[10], 'sig', ARGV[11])
return { 'SAVED' }
