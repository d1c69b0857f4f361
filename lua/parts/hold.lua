-- Holds a place. Promises of another line may last longer than this one's.
local function hold(held_key, claim, place_goes)
  redis.call('ZADD', held_key, place_goes, claim)
  if redis.call('PTTL', held_key) < arrive_ms then
    redis.call('PEXPIRE', held_key, string.format('%.0f', arrive_ms))
  end
end
