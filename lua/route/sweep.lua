-- route/sweep: frees routes of an owner long gone, and heals its index.
--
-- KEYS 1 owned:<node>  set, the objects of the node
--      2 owned         set, the nodes that have an owned: set
--      3 node:<node>   hash, the node's row
--      4.. route:<kind>:<object>  hash, one for each object (KEYS 3 again for an entry that names none)
-- ARGV 1 node, 2 lockTimeoutMs, 3 how long a free record stays (ms), 4 v, 5 dry run (1: decide, write nothing),
--      then four for each object: <kind>:<object>, version as read, version of the free record, sig of the free record;
--      0 to 256 objects
-- Answers SWEPT <word>...  one an object: RELEASED, KEPT (owned by the living, or saved not long ago), HEALED (index
--                          entry whose record is gone or another's), SKIPPED (changed since it was read)
-- Events  none
-- Bound   256 objects a call.
-- Repeat  what was freed is no longer in the index and is answered HEALED.
-- Example EVALSHA <sha> 4 maitred:{eu}:owned:b1 maitred:{eu}:owned maitred:{eu}:node:b1 maitred:{eu}:route:island:i1
--         b1 1500000 60000 1 0 island:i1 1796000001000 1796009001000 5ebd00f2.zzz
local count = (#ARGV - 5) / 4
if count < 0 or count ~= math.floor(count) or count > 256 or #KEYS ~= 3 + count then
  return redis.error_reply('ARITY route/sweep takes 3 keys and 5 arguments, and a key and four arguments for up to 256 objects')
end
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local owned, owners, node = KEYS[1], KEYS[2], KEYS[3]
local id, lock_timeout, free_ms, dry = ARGV[1], whole(ARGV[2]), ARGV[3], ARGV[5] == '1'
if not (lock_timeout and whole(free_ms)) then
  return redis.error_reply('ARGUMENT route/sweep: lockTimeoutMs and the time of a free record are whole numbers')
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

local lease = redis.call('HMGET', node, 'epoch', 'beat_at', 'lease_ms')
local alive = lease[1] and lease_left(lease[2], lease[3]) >= 0
local plan = {}
for i = 1, count do
  local route = KEYS[3 + i]
  local member, read, version = ARGV[2 + 4 * i], ARGV[3 + 4 * i], whole(ARGV[4 + 4 * i]) or 0
  local row = redis.call('HMGET', route, 'owner', 'owner_epoch', 'version', 'saved_at')
  local step = { word = 'KEPT', route = route, member = member }
  if row[1] ~= id then
    step.word = 'HEALED'
  elseif not (alive and row[2] == lease[1]) and math.abs(now - (whole(row[4]) or 0)) > lock_timeout then
    step.word = 'SKIPPED'
    if row[3] == read and may_follow(version, whole(read) or 0, 5000) then
      step.word, step.version, step.sig = 'RELEASED', ARGV[4 + 4 * i], ARGV[5 + 4 * i]
    end
  end
  plan[i] = step
end

local answer = { 'SWEPT' }
for i, step in ipairs(plan) do
  answer[1 + i] = step.word
  if not dry then
    if step.word == 'HEALED' or step.word == 'RELEASED' then
      redis.call('SREM', owned, step.member)
    end
    if step.version then
      redis.call('HSET', step.route, 'owner', '', 'owner_epoch', '0', 'version', step.version, 'state', 'FREE',
        'v', ARGV[4], 'sig', step.sig)
      redis.call('PEXPIRE', step.route, free_ms)
    end
  end
end
if not dry then
  unlist_empty(owned, owners, id)
end
return answer
