-- queue/peek: the players that are admitted next, in order, with their tickets. Changes nothing.
--
-- KEYS 1 line:<line>     zset, player -> lane * 2^42 + sequence
--      2 tickets:<line>  hash, player -> ticket
--      3 gate:<line>     hash
-- ARGV 1 lane weights (1 to 16 whole numbers, blanks between), 2 count (1 to 64)
-- Answers PEEK <waiting> <now> then <lane> <player> <ticket> for each; an empty ticket where there is none
-- Events  none
-- Bound   64 players, 16 lanes.
-- Repeat  a look changes nothing, so a repeat is another look.
-- Example EVALSHA <sha> 3 maitred:{eu}:line:login maitred:{eu}:tickets:login maitred:{eu}:gate:login "3 1" 64
if #KEYS ~= 3 or #ARGV ~= 2 then
  return redis.error_reply('ARITY queue/peek takes 3 keys and 2 arguments')
end
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
-- part weights
-- The weights of a line's lanes, out of whole numbers with blanks between.
local function weights_of(text)
  local found = {}
  for weight in string.gmatch(text, '%d+') do
    found[#found + 1] = math.max(1, tonumber(weight))
  end
  return found
end
-- end part
local line, tickets, gate = KEYS[1], KEYS[2], KEYS[3]
local count = whole(ARGV[2])
local weights = weights_of(ARGV[1])
if not count or count < 1 or count > 64 or #weights < 1 or #weights > 16 then
  return redis.error_reply('ARGUMENT queue/peek: a count of 1 to 64 and 1 to 16 weights are whole numbers')
end

-- part time
local time = redis.call('TIME')
-- Milliseconds cut out as text: cheaper than arithmetic and %.0f, and the same digits on every Lua.
local now_text = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now = tonumber(now_text)
-- end part
-- part lanes
local lane_size = 4398046511104
-- The scores of a lane, which count from 0. The last lane of a line has also those behind it.
local function lane_bounds(index, lanes)
  return string.format('%.0f', index * lane_size),
    index == lanes - 1 and '+inf' or '(' .. string.format('%.0f', (index + 1) * lane_size)
end
-- end part
-- part lane_behind
-- The next lane behind that one that somebody stands in.
local function lane_behind(line_key, index)
  local head = redis.call('ZRANGEBYSCORE', line_key, string.format('%.0f', (index + 1) * lane_size), '+inf',
    'WITHSCORES', 'LIMIT', '0', '1')
  return head[2] and math.min(15, math.floor(tonumber(head[2]) / lane_size))
end
-- end part
-- part lane_heads
-- The first of a lane. With those of the last one stand those of lanes that the line does not have any more, all of them in
-- the order of their sequences: else whoever stands there would wait behind every newcomer.
local function lane_heads(line_key, index, lanes, most)
  local lower, upper = lane_bounds(index, lanes)
  local behind = index == lanes - 1 and index < 15 and lane_behind(line_key, index)
  if not behind then
    return redis.call('ZRANGEBYSCORE', line_key, lower, upper, 'LIMIT', '0', most)
  end
  local found = {}
  while index do
    local _, limit = lane_bounds(index, 16)
    local page = redis.call('ZRANGEBYSCORE', line_key, string.format('%.0f', index * lane_size), limit, 'WITHSCORES',
      'LIMIT', '0', most)
    for i = 1, #page, 2 do
      found[#found + 1] = { member = page[i], seq = tonumber(page[i + 1]) - index * lane_size, place = #found }
    end
    index = index < 15 and lane_behind(line_key, index)
  end
  table.sort(found, function(a, b)
    if a.seq == b.seq then
      return a.place < b.place
    end
    return a.seq < b.seq
  end)
  local members = {}
  for i = 1, math.min(#found, tonumber(most)) do
    members[i] = found[i].member
  end
  return members
end
-- end part
-- part turns
-- The virtual time of each lane.
local function lanes_ahead(text, lanes)
  local times = {}
  for number in string.gmatch(text or '', '%d+') do
    times[#times + 1] = tonumber(number)
  end
  for i = 1, lanes do
    times[i] = times[i] or 0
  end
  return times
end
-- The lane whose head is next: of those that have one, the least ahead.
local function next_lane(heads, at, ahead)
  local best
  for i = 1, #heads do
    if heads[i][at[i]] and (not best or ahead[i] < ahead[best]) then
      best = i
    end
  end
  return best
end
-- end part
-- part names
-- What no player can be called was written by hand, and so was a ticket that is no text.
local function is_name(member, is_ticket)
  if not string.find(member, is_ticket and '[^%w%p%s%c]' or '[^%w%p]') then
    return is_ticket or (member ~= '' and #member <= 128)
  end
  local at, size, most = 1, #member, is_ticket and 1024 or 128
  while at <= size and size <= most do
    local code = string.byte(member, at)
    local more = code < 128 and 0 or code < 194 and 4 or code < 224 and 1 or code < 240 and 2 or code < 245 and 3 or 4
    if at + more > size then
      return false
    end
    code = code < 128 and code or code % 2 ^ (6 - more)
    for i = at + 1, at + more do
      local byte = string.byte(member, i)
      if byte < 128 or byte > 191 then
        return false
      end
      code = code * 64 + byte - 128
    end
    -- Longer than needed, half of a pair; in a name also control characters and blanks.
    if more > 3 or (more == 2 and code < 2048) or (more == 3 and code < 65536) or code > 1114111
      or (code >= 55296 and code <= 57343) or not is_ticket and (code <= 32 or (code >= 127 and code <= 160)
      or code == 5760 or (code >= 8192 and code <= 8202) or code == 8232 or code == 8233 or code == 8239
      or code == 8287 or code == 12288) then
      return false
    end
    at = at + more + 1
  end
  return size <= most
end
-- end part

local heads, at, ahead = {}, {}, lanes_ahead(redis.call('HGET', gate, 'lanes'), #weights)
for i = 1, #weights do
  heads[i], at[i] = {}, 1
  for _, member in ipairs(lane_heads(line, i - 1, #weights, ARGV[2])) do
    if is_name(member) then
      heads[i][#heads[i] + 1] = member
    end
  end
end
local lanes, players = {}, {}
while #players < count do
  local best = next_lane(heads, at, ahead)
  if not best then
    break
  end
  lanes[#lanes + 1] = string.format('%.0f', best - 1)
  players[#players + 1] = heads[best][at[best]]
  at[best] = at[best] + 1
  ahead[best] = ahead[best] + math.floor(720720 / weights[best])
end
local found = {}
for i, player in ipairs(players) do
  -- A ticket that is no text is none.
  local ticket = redis.call('HGET', tickets, player) or ''
  found[i] = is_name(ticket, true) and ticket or ''
end
local answer = { 'PEEK', string.format('%.0f', redis.call('ZCARD', line)), now_text }
for i, player in ipairs(players) do
  answer[#answer + 1] = lanes[i]
  answer[#answer + 1] = player
  answer[#answer + 1] = found[i]
end
return answer
