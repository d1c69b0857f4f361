-- The next lane behind that one that somebody stands in.
local function lane_behind(line_key, index)
  local head = redis.call('ZRANGEBYSCORE', line_key, string.format('%.0f', (index + 1) * lane_size), '+inf',
    'WITHSCORES', 'LIMIT', '0', '1')
  return head[2] and math.min(15, math.floor(tonumber(head[2]) / lane_size))
end
