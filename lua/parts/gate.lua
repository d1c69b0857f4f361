-- What is in the gate's bucket (a million for each player), and when it was filled. It starts empty where there is none or
-- the clock went back. `waited_since` (ms) is since when somebody has been waiting for it.
local function gate_bucket(bucket_text, refilled_text, rate, burst, waited_since)
  local most = math.max(1, burst > 0 and burst or math.floor(rate / 4)) * 1000000
  local bucket, refilled_at = whole(bucket_text), whole(refilled_text)
  if not (bucket and refilled_at and refilled_at <= now_us + 1000000) then
    bucket, refilled_at = 0, now_us
  elseif now_us > refilled_at then
    if waited_since and bucket < 1000000 then
      -- Whoever waits at a shut gate loses nothing by a round that comes late: one player's worth, or 50 ms' of them.
      local late = 1000000 + math.max(1000000, rate * 50000)
      most = math.max(most, math.min(late, (now_us - waited_since * 1000) * rate))
    end
    bucket, refilled_at = bucket + (now_us - refilled_at) * rate, now_us
  end
  return math.min(bucket, most), refilled_at
end
-- The last number that was given. One that no script can have given would be the end of all numbers.
local function last_given(text, limit)
  local number = whole(text) or 0
  return number < limit and number or 0
end
