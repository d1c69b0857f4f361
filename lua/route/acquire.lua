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
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local route, node, owned, owners, owner_node, owner_owned = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local member, id, epoch, version, lock_timeout = ARGV[1], ARGV[2], ARGV[3], whole(ARGV[4]), whole(ARGV[7])
if not (version and lock_timeout) then
  return redis.error_reply('ARGUMENT route/acquire: version and lockTimeoutMs are whole numbers')
end

-- part time
local time = redis.call('TIME')
-- Milliseconds cut out as text: cheaper than arithmetic and %.0f, and the same digits on every Lua.
local now_text = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now = tonumber(now_text)
-- end part
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
-- part version
-- Whether a number may come after the last one: numbers grow with the clock, and never run ahead of it.
local function may_follow(proposed, last, behind_ms)
  return proposed > last and proposed >= now - behind_ms and proposed <= math.max(now, last + 1)
end
-- end part

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
-- Whoever asks for the object next looks at the caller's beat as well.
local held, why, current = holds_epoch(node, epoch)
if not held then
  return { why, current }
end
if mine then
  redis.call('HSET', route, 'saved_at', now_text, 'state', 'OWNED')
  return { 'ACQUIRED', standing }
end
local owner, last = row[1] or '', whole(standing) or 0
if owner ~= '' then
  local gone = owner == id
  if not gone then
    if owner ~= ARGV[9] then
      return { 'NEED', owner }
    end
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
    gone = not alive(owner_node, row[2])
  end
  local silent = math.abs(now - (whole(row[3]) or 0)) > lock_timeout
  if not silent and not (gone and ARGV[8] == '1') then
    return { 'OWNED', owner, row[2] or '0', standing }
  end
end
if not may_follow(version, last, 1000) then
  return { 'VERSION', string.format('%.0f', math.max(now, last + 1)), now_text }
end

local saved_at = ARGV[4]
if version > now then
  saved_at = now_text
end
redis.call('SADD', owned, member)
redis.call('SADD', owners, id)
if owner ~= '' and owner ~= id then
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
  redis.call('SREM', owner_owned, member)
  unlist_empty(owner_owned, owners, owner)
end
if standing and owner == '' then
  -- A free record runs out; an owned one does not.
  redis.call('DEL', route)
end
redis.call('HSET', route, 'owner', id, 'owner_epoch', epoch, 'version', ARGV[4], 'saved_at', saved_at,
  'state', 'OWNED', 'v', ARGV[5], 'sig', ARGV[6])
return { 'ACQUIRED', ARGV[4] }
