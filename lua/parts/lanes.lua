local lane_size = 4398046511104
-- The scores of a lane, which count from 0. The last lane of a line has also those behind it.
local function lane_bounds(index, lanes)
  return string.format('%.0f', index * lane_size),
    index == lanes - 1 and '+inf' or '(' .. string.format('%.0f', (index + 1) * lane_size)
end
