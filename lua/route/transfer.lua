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
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local route, owned, owners, target_node, target_owned = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local member, id, epoch, target, target_epoch = ARGV[1], ARGV[2], ARGV[3], ARGV[6], ARGV[7]
local held, version = whole(ARGV[4]), whole(ARGV[8])
if not (held and version) then
  return redis.error_reply('ARGUMENT route/transfer: versions are whole numbers')
end

-- part time
local time = redis.call('TIME')
-- Milliseconds cut out as text: cheaper than arithmetic and %.0f, and the same digits on every Lua.
local now_text = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now = tonumber(now_text)
-- end part
-- part lease
-- How long a node's lease lasts still, in ms: below 0 it is over, and so it is where the row is not in order. A beat that
-- seems to come is from before the clock stepped back (R-34).
local function lease_left(beat_at, lease_ms)
  return (whole(lease_ms) or 0) - math.abs(now - (whole(beat_at) or 0))
end
-- end part
-- part liveness
-- Whether the node lives in that epoch; if not, the answer that its own call gets.
local function alive(key, epoch)
  local row = redis.call('HMGET', key, 'epoch', 'beat_at', 'lease_ms')
  if not row[1] then
    return false, 'NO_LEASE'
  end
  if row[1] ~= epoch then
    return false, 'FENCED', row[1]
  end
  return lease_left(row[2], row[3]) >= 0, 'NO_LEASE'
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
-- part version
-- Whether a number may come after the last one: numbers grow with the clock, and never run ahead of it.
local function may_follow(proposed, last, behind_ms)
  return proposed > last and proposed >= now - behind_ms and proposed <= math.max(now, last + 1)
end
-- end part
-- part index
-- An index names the sets that hold something: takes one that is empty out of it. An index of another type stays as it is:
-- whoever calls this has written before, and must not end in the middle. True where the set is empty.
local function unlist_empty(set_key, index_key, entry)
  if redis.call('EXISTS', set_key) == 0 then
    local taken = redis.pcall('SREM', index_key, entry)
    if type(taken) == 'table' and not string.find(taken.err or '', 'WRONGTYPE', 1, true) then
      redis.call('SREM', index_key, entry)
    end
    return true
  end
  return false
end
-- end part

local other = other_record(ARGV[5], id, epoch, ARGV[4])
if other then
  if other[1] == target and other[2] == target_epoch and other[3] == ARGV[8] then
    return { 'MOVED' }
  end
  return { 'LOST', other[1], other[2], other[3] }
end
if not alive(target_node, target_epoch) then
  return { 'TARGET_GONE' }
end
if not may_follow(version, held, 1000) then
  return { 'VERSION', string.format('%.0f', math.max(now, held + 1)), now_text }
end

redis.call('SREM', owned, member)
unlist_empty(owned, owners, id)
redis.call('SADD', target_owned, member)
redis.call('SADD', owners, target)
redis.call('HSET', route, 'owner', target, 'owner_epoch', target_epoch, 'version', ARGV[8],
  'saved_at', now_text, 'state', 'MOVED', 'v', ARGV[9], 'sig', ARGV[10])
return { 'MOVED' }
