-- queue/position: where a player stands in a line. Changes nothing.
--
-- KEYS 1 line:<line>             zset, player -> lane * 2^42 + sequence
--      2 tickets:<line>          hash, player -> ticket
--      3 away:<line>             zset, player -> when the place goes
--      4 gate:<line>             hash
--      5 nodes:<role>            zset, the roster that the gate counts
-- ARGV 1 player (empty: of the line only), 2 lane weights (1 to 16 whole numbers, blanks between), 3 fixed rate a second
--      (0: by backends), 4 rate a second for each live backend
-- Answers WAITING <seq> <lane> <rank> <rate> <busy> <full> <recent> <lanes> <length>...  rank inside the lane from 0, then
--                            what position and estimate are made of, with a length for each lane; rate 0: paused
--         AWAY <left ms>     the place is kept for that long
--         NONE               no ticket
--         LINE <waiting> <away> <rate> <busy> <full> <recent> <lanes> <paused> <bucket> <admitted serial> <length>...  of
--                            the line; rate also where it is paused
-- Events  none
-- Bound   one player, 16 lanes.
-- Repeat  a look changes nothing, so a repeat is another look.
-- Example EVALSHA <sha> 5 maitred:{eu}:line:login maitred:{eu}:tickets:login maitred:{eu}:away:login
--         maitred:{eu}:gate:login maitred:{eu}:nodes:backend alice 1 500 100
if #KEYS ~= 5 or #ARGV ~= 4 then
  return redis.error_reply('ARITY queue/position takes 5 keys and 4 arguments')
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
local line, tickets, away, gate, roster = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local player, fixed, each = ARGV[1], whole(ARGV[3]), whole(ARGV[4])
local weights = weights_of(ARGV[2])
if not (fixed and each) or #weights < 1 or #weights > 16 then
  return redis.error_reply('ARGUMENT queue/position: rates and 1 to 16 weights are whole numbers')
end

-- part time
local time = redis.call('TIME')
-- Milliseconds cut out as text: cheaper than arithmetic and %.0f, and the same digits on every Lua.
local now_text = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now = tonumber(now_text)
-- end part
-- part rate
-- How many the gate lets through in a second: a fixed number, or so many for each live node. One that has not beaten for
-- 3 s or for a lease, as the last round found it on the nodes, whichever is longer, is not alive (R-24).
local function gate_rate(fixed, each, roster_key, lease_text)
  if fixed > 0 then
    return fixed
  end
  local span = math.max(3000, math.min(600000, whole(lease_text) or 0))
  return each * redis.call('ZCOUNT', roster_key, string.format('%.0f', now - span), string.format('%.0f', now + span))
end
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
-- part lane_rank
-- How many are served before whoever has that sequence in the lane, out of the same lane and those served with it.
local function lane_rank(line_key, lane, seq, lanes)
  local own = math.min(lane, 15)
  local index = math.min(own, lanes - 1)
  local is_last, rank = index == lanes - 1, 0
  while index do
    -- Of equal sequences the lower lane comes first.
    local upper = string.format('%.0f', index * lane_size + seq)
    rank = rank + redis.call('ZCOUNT', line_key, string.format('%.0f', index * lane_size),
      index < own and upper or '(' .. upper)
    index = is_last and index < 15 and lane_behind(line_key, index)
  end
  return rank
end
-- end part
-- part lengths
-- How many wait in each lane, the first one at 1.
local function lane_lengths(line_key, lanes, in_all)
  local lengths = {}
  for i = 1, lanes do
    local lower, upper = lane_bounds(i - 1, lanes)
    lengths[i] = lanes == 1 and in_all or redis.call('ZCOUNT', line_key, lower, upper)
  end
  return lengths
end
-- end part

local state = redis.call('HMGET', gate, 'busy', 'recent', 'lanes', 'paused', 'bucket', 'serial', 'full', 'lease')
local rate = gate_rate(fixed, each, roster, state[8])
local waiting = redis.call('ZCARD', line)
local answer
local score = player ~= '' and redis.call('ZSCORE', line, player)
if player == '' then
  answer = { 'LINE', string.format('%.0f', waiting), string.format('%.0f', redis.call('ZCARD', away)),
    string.format('%.0f', rate), state[1] or '0', state[7] or '0', state[2] or '', state[3] or '', state[4] or '0',
    state[5] or '0', state[6] or '0' }
elseif score then
  local seq, lane = string.match(redis.call('HGET', tickets, player) or '', '^(%d+) (%d+) ')
  score = whole(score) or 0
  local at = math.floor(score / lane_size)
  answer = { 'WAITING', seq or string.format('%.0f', score - at * lane_size), lane or string.format('%.0f', at),
    string.format('%.0f', lane_rank(line, at, score - at * lane_size, #weights)),
    state[4] == '1' and '0' or string.format('%.0f', rate), state[1] or '0', state[7] or '0', state[2] or '',
    state[3] or '' }
else
  local goes_at = redis.call('ZSCORE', away, player)
  if not goes_at then
    return { 'NONE' }
  end
  return { 'AWAY', string.format('%.0f', math.max(0, (whole(goes_at) or 0) - now)) }
end
for _, length in ipairs(lane_lengths(line, #weights, waiting)) do
  answer[#answer + 1] = string.format('%.0f', length)
end
return answer
