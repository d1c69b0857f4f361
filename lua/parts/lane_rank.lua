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
