-- How many wait in each lane, the first one at 1.
local function lane_lengths(line_key, lanes, in_all)
  local lengths = {}
  for i = 1, lanes do
    local lower, upper = lane_bounds(i - 1, lanes)
    lengths[i] = lanes == 1 and in_all or redis.call('ZCOUNT', line_key, lower, upper)
  end
  return lengths
end
