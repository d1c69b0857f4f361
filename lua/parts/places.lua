-- Claims from before the clock stepped back: they hold for longer than they can last, and are over (R-34).
local stale_claims = {}
local function is_stale(claim, goes_at)
  return (whole(goes_at) or math.huge) > now + (whole(string.match(claim, ' (%d+)$')) or 3600000) + 5000
end
-- How many places are promised or taken without the node's own count; nothing where the key is of another type.
local function promised(held_key)
  local claims = redis.pcall('ZCOUNT', held_key, '(' .. now_text, '+inf')
  if type(claims) ~= 'number' then
    return nil
  end
  local beyond = string.format('(%.0f', now + arrive_ms + 5000)
  local far = redis.call('ZRANGEBYSCORE', held_key, beyond, '+inf', 'WITHSCORES', 'LIMIT', '0', '256')
  for i = 1, #far, 2 do
    if is_stale(far[i], far[i + 1]) then
      claims = claims - 1
      stale_claims[#stale_claims + 1] = { held = held_key, claim = far[i] }
    end
  end
  return claims
end
-- To be called where the script writes.
local function drop_stale_claims()
  for _, stale in ipairs(stale_claims) do
    redis.call('ZREM', stale.held, stale.claim)
  end
end
-- Places of a node that are neither taken, promised nor reserved; a soft cap of 0 is none. A node whose row does not tell its
-- numbers, or one of whose keys is of another type, has no places (R-35): it stands in nobody else's way (R-42).
local function unclaimed(players, soft_cap, held_key, due_key)
  local there, cap = whole(players), whole(soft_cap)
  local held, reserved = promised(held_key), redis.pcall('ZCARD', due_key)
  if not (there and cap and held and type(reserved) == 'number') then
    return 0
  end
  return cap == 0 and 1000000 or cap - there - held - reserved
end
