-- How many the gate lets through in a second: a fixed number, or so many for each live node. One that has not beaten for
-- 3 s or for a lease, as the last round found it on the nodes, whichever is longer, is not alive (R-24).
local function gate_rate(fixed, each, roster_key, lease_text)
  if fixed > 0 then
    return fixed
  end
  local span = math.max(3000, math.min(600000, whole(lease_text) or 0))
  return each * redis.call('ZCOUNT', roster_key, string.format('%.0f', now - span), string.format('%.0f', now + span))
end
