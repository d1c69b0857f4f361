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
local line, tickets, away, gate, roster = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local player, fixed, each = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local weights = {}
for weight in string.gmatch(ARGV[2], '%d+') do
  weights[#weights + 1] = tonumber(weight)
end
if not (fixed and each) or #weights < 1 or #weights > 16 then
  return redis.error_reply('ARGUMENT queue/position: rates and 1 to 16 weights are whole numbers')
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local lane_size = 4398046511104
local rate = fixed
if fixed == 0 then
  rate = each * redis.call('ZCOUNT', roster, string.format('%.0f', now - 3000), string.format('%.0f', now + 3000))
end
local state = redis.call('HMGET', gate, 'busy', 'recent', 'lanes', 'paused', 'bucket', 'serial', 'full')
local waiting = redis.call('ZCARD', line)
local answer
local score = player ~= '' and redis.call('ZSCORE', line, player)
if player == '' then
  answer = { 'LINE', string.format('%.0f', waiting), string.format('%.0f', redis.call('ZCARD', away)),
    string.format('%.0f', rate), state[1] or '0', state[7] or '0', state[2] or '', state[3] or '', state[4] or '0',
    state[5] or '0', state[6] or '0' }
elseif score then
  local seq, lane = string.match(redis.call('HGET', tickets, player) or '', '^(%d+) (%d+) ')
  score = tonumber(score)
  local at = math.floor(score / lane_size)
  local index = math.min(at, #weights - 1)
  local lower, upper = string.format('%.0f', index * lane_size), '(' .. string.format('%.0f', score)
  answer = { 'WAITING', seq or string.format('%.0f', score - at * lane_size), lane or string.format('%.0f', at),
    string.format('%.0f', redis.call('ZCOUNT', line, lower, upper)),
    state[4] == '1' and '0' or string.format('%.0f', rate), state[1] or '0', state[7] or '0', state[2] or '',
    state[3] or '' }
else
  local goes_at = redis.call('ZSCORE', away, player)
  if not goes_at then
    return { 'NONE' }
  end
  return { 'AWAY', string.format('%.0f', math.max(0, tonumber(goes_at) - now)) }
end
for i = 1, #weights do
  local upper = i == #weights and '+inf' or '(' .. string.format('%.0f', i * lane_size)
  local length = #weights == 1 and waiting
    or redis.call('ZCOUNT', line, string.format('%.0f', (i - 1) * lane_size), upper)
  answer[#answer + 1] = string.format('%.0f', length)
end
return answer
