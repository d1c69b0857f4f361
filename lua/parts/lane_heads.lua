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
