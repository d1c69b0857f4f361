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
