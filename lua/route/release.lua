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
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local route, owned, owners, object = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local epoch, held, version = ARGV[3], whole(ARGV[4]), whole(ARGV[6])
if not (held and version and whole(ARGV[9])) then
  return redis.error_reply('ARGUMENT route/release: versions and times are whole numbers')
end

-- part time
local time = redis.call('TIME')
-- Milliseconds cut out as text: cheaper than arithmetic and %.0f, and the same digits on every Lua.
local now_text = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now = tonumber(now_text)
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

local other = other_record(ARGV[5], ARGV[2], epoch, ARGV[4])
if other then
  -- Bytes that are there still say that it was another release, and that whoever asks has deleted nothing.
  if other[1] == '' and other[3] == ARGV[6] and (ARGV[10] ~= '1' or redis.call('EXISTS', object) == 0) then
    return { 'RELEASED' }
  end
  return { 'LOST', other[1], other[2], other[3] }
end
if not may_follow(version, held, 1000) then
  return { 'VERSION', string.format('%.0f', math.max(now, held + 1)), now_text }
end

redis.call('SREM', owned, ARGV[1])
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
unlist_empty(owned, owners, ARGV[2])
redis.call('HSET', route, 'owner', '', 'owner_epoch', '0', 'version', ARGV[6], 'state', 'FREE', 'v', ARGV[7],
  'sig', ARGV[8])
redis.call('PEXPIRE', route, ARGV[9])
if ARGV[10] == '1' then
  redis.call('DEL', object)
end
return { 'RELEASED' }
