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
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local route, node = KEYS[1], KEYS[2]
local epoch = ARGV[2]
if not whole(ARGV[5]) then
  return redis.error_reply('ARGUMENT route/renew: saved_at is a whole number')
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

local held, why, current = holds_epoch(node, epoch)
if not held then
  return { why, current }
end
local other = other_record(ARGV[4], ARGV[1], epoch, ARGV[3])
if other then
  return { 'LOST', other[1], other[2], other[3] }
end

redis.call('HSET', route, 'saved_at', ARGV[5])
return { 'RENEWED' }
