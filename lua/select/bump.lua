-- select/bump: adds one proxy's picks to the recent picks of all proxies, a count a backend that halves every half-life.
--
-- KEYS 1 picks  hash, backend -> "<thousandths of a pick> <store ms>", @<proxy> -> "<its last operation> <store ms>"
-- ARGV 1 proxy, 2 operation, 3 half-life ms, 4 life of the hash ms,
--      5 picks (b1=3 b2, one where no number stands; up to 64 backends),
--      6 fields that look forgotten (b7 @p9, up to 64)
-- Answers BUMPED <now>
-- Events  none
-- Bound   64 backends and 64 fields a call.
-- Repeat  the last operation of a proxy counts once; its field goes a life of the hash later.
-- Example EVALSHA <sha> 1 maitred:{eu}:picks p1 op1 10000 160000 "b1=3 b2" ""
if #KEYS ~= 1 or #ARGV ~= 6 then
  return redis.error_reply('ARITY select/bump takes 1 key and 6 arguments')
end
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local picks = KEYS[1]
local proxy, operation, halflife, life = '@' .. ARGV[1], ARGV[2], whole(ARGV[3]), whole(ARGV[4])
if not (halflife and life and halflife >= 1 and life >= 1) then
  return redis.error_reply('ARGUMENT select/bump: half-life and life are whole numbers from 1')
end
local more, forgotten = {}, {}
for word in string.gmatch(ARGV[5], '[^ ]+') do
  local backend, count = string.match(word, '^([%w._-]+)=?(%d*)$')
  if not backend or #count > 9 or #more >= 64 then
    return redis.error_reply('ARGUMENT select/bump: picks are up to 64 of backend=count')
  end
  more[#more + 1] = { backend, (tonumber(count) or 1) * 1000 }
end
for word in string.gmatch(ARGV[6], '[^ ]+') do
  if #forgotten >= 64 then
    return redis.error_reply('ARGUMENT select/bump: up to 64 fields')
  end
  forgotten[#forgotten + 1] = word
end

-- part time
local time = redis.call('TIME')
-- Milliseconds cut out as text: cheaper than arithmetic and %.0f, and the same digits on every Lua.
local now_text = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now = tonumber(now_text)
-- end part

-- The thousandths that are left of an entry, 0 for one that is none.
local function left(entry)
  local value, at = string.match(entry or '', '^(%d+) (%d+)$')
  if not value then
    return 0
  end
  -- A time that seems to come is from before the clock went back: were it no age, the count would stay until then.
  local age = math.abs(now - tonumber(at))
  return math.floor(math.min(tonumber(value), 1000000000000) * 2 ^ (-age / halflife))
end
local last = redis.call('HGET', picks, proxy)
local counted = last and string.match(last, '^([^ ]+)') == operation
local write, drop = {}, {}
if not counted then
  for _, entry in ipairs(more) do
    local value = left(redis.call('HGET', picks, entry[1])) + entry[2]
    write[#write + 1] = { entry[1], string.format('%.0f', value) .. ' ' .. now_text }
  end
end
for _, field in ipairs(forgotten) do
  local entry = redis.call('HGET', picks, field)
  if entry and string.sub(field, 1, 1) == '@' then
    local at = tonumber(string.match(entry, ' (%d+)$') or '0')
    if field ~= proxy and math.abs(now - at) >= life then
      drop[#drop + 1] = field
    end
  elseif entry and left(entry) < 10 then
    drop[#drop + 1] = field
  end
end

-- First, so that a backend that is picked again is not lost.
for _, field in ipairs(drop) do
  redis.call('HDEL', picks, field)
end
if not counted then
  for _, entry in ipairs(write) do
    redis.call('HSET', picks, entry[1], entry[2])
  end
  redis.call('HSET', picks, proxy, operation .. ' ' .. now_text)
  redis.call('PEXPIRE', picks, string.format('%.0f', life))
end
return { 'BUMPED', now_text }
