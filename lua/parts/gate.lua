-- What is in the gate's bucket (a million for each player), and when it was filled. It starts empty where there is none or
-- the clock went back.
local function gate_bucket(bucket_text, refilled_text, rate, burst)
  local most = math.max(1, burst > 0 and burst or math.floor(rate / 4)) * 1000000
  local bucket, refilled_at = whole(bucket_text), whole(refilled_text)
  if not (bucket and refilled_at and refilled_at <= now_us + 1000000) then
    bucket, refilled_at = 0, now_us
  elseif now_us > refilled_at then
    bucket, refilled_at = bucket + (now_us - refilled_at) * rate, now_us
  end
  return math.min(bucket, most), refilled_at
end
-- The last number that was given. One that no script can have given would be the end of all numbers.
local function last_given(text, limit)
  local number = whole(text) or 0
  return number < limit and number or 0
end
