-- limit/take: charges one operation of a player against a limit, where the limit lets it through (GCRA).
--
-- KEYS 1 limit:<name>:<player>  hash, tat (µs, when nothing is owed any more) and charged (operations, newest first)
-- ARGV 1 operation, 2 interval (µs that one operation costs), 3 burst (operations at once), 4 keep (ms that a charged
--      operation is known)
-- Answers ALLOWED <remaining>  charged; so many more would be let through at that moment
--         DENIED <wait>        not charged; the next one fits in so many ms
-- Events  none
-- Bound   one row; the operations charged in the last keep ms, at most 256.
-- Repeat  an operation that is among those charged is answered as it was and charged once; one that was denied, or
--         given back, is judged anew.
-- Example EVALSHA <sha> 1 maitred:{eu}:limit:command:alice op1 60000000 1 60000
if #KEYS ~= 1 or #ARGV ~= 4 then
  return redis.error_reply('ARITY limit/take takes 1 key and 4 arguments')
end
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local limit = KEYS[1]
local op, interval, burst, keep = ARGV[1], whole(ARGV[2]), whole(ARGV[3]), whole(ARGV[4])
if not (interval and burst and keep) then
  return redis.error_reply('ARGUMENT limit/take: interval, burst and keep are whole numbers')
end

-- part time
local time = redis.call('TIME')
-- Milliseconds cut out as text: cheaper than arithmetic and %.0f, and the same digits on every Lua.
local now_text = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now = tonumber(now_text)
-- end part
-- part charge
-- One charged operation of a limit: <operation>:<ms>:<µs that the charge counts from>.
local charged_entry = '([^ :]+):(%d+):(%d+)'
local function charged_text(op, at, base)
  return op .. ':' .. string.format('%.0f', at) .. ':' .. string.format('%.0f', base)
end
-- end part

-- Whole ms of the store, counted in µs: not every server has finer ones.
local now_us = now * 1000
local most = interval * burst
local row = redis.call('HMGET', limit, 'tat', 'charged')
local kept, count = {}, 1
for old, at, base in string.gmatch(row[2] or '', charged_entry) do
  if old == op then
    local left = most - (tonumber(base) + interval - tonumber(at) * 1000)
    return { 'ALLOWED', string.format('%.0f', math.max(0, math.floor(left / interval))) }
  end
  if count < 256 and math.abs(now - tonumber(at)) < keep then
    count = count + 1
    kept[count] = old .. ':' .. at .. ':' .. base
  end
end

-- More than the whole burst is owed only where the clock stepped back or the limit was changed: then the whole burst is
-- owed from here on, so that nobody waits for the clock to catch up, and nobody gains.
local tat = whole(row[1]) or 0
local stepped = tat > now_us + most
if stepped then
  tat = now_us + most
end
local base = math.max(tat, now_us)
local owed = base + interval - now_us
if owed > most then
  if stepped then
    redis.call('HSET', limit, 'tat', string.format('%.0f', tat))
  end
  -- A row without an end was written by hand.
  if stepped or redis.call('PTTL', limit) < 0 then
    redis.call('PEXPIRE', limit, string.format('%.0f', math.max(math.ceil((base - now_us) / 1000), keep)))
  end
  return { 'DENIED', string.format('%.0f', math.ceil((owed - most) / 1000)) }
end

kept[1] = charged_text(op, now, base)
redis.call('HSET', limit, 'tat', string.format('%.0f', base + interval), 'charged', table.concat(kept, ' ', 1, count))
redis.call('PEXPIRE', limit, string.format('%.0f', math.max(math.ceil(owed / 1000), keep)))
return { 'ALLOWED', string.format('%.0f', math.floor((most - owed) / interval)) }
