-- How many the gate lets through in a second: a fixed number, or so many for each live backend.
local function gate_rate(fixed, each, roster_key)
  if fixed > 0 then
    return fixed
  end
  return each * redis.call('ZCOUNT', roster_key, string.format('%.0f', now - 3000), string.format('%.0f', now + 3000))
end
