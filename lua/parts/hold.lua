-- Holds a place for the player. Promises of another line may last longer than this one's.
local function hold(held_key, place_goes)
  redis.call('ZADD', held_key, place_goes, player)
  if redis.call('PTTL', held_key) < arrive_ms then
    redis.call('PEXPIRE', held_key, string.format('%.0f', arrive_ms))
  end
end
