-- limit/refund: takes the charge of one operation back, as if it had never been made.
--
-- KEYS 1 limit:<name>:<player>  hash, tat (µs, when nothing is owed any more) and charged (operations, newest first)
-- ARGV 1 operation, 2 interval (µs that one operation costs)
-- Answers REFUNDED  the charge is gone
--         NONE      there is no such charge, or it is too old to be known
-- Events  none
-- Bound   one row; at most 256 operations are kept in it. A row that says nothing any more goes.
-- Repeat  an operation that was given back already is answered NONE and changes nothing.
-- Example EVALSHA <sha> 1 maitred:{eu}:limit:command:alice op1 60000000
if #KEYS ~= 1 or #ARGV ~= 2 then
  return redis.error_reply('ARITY limit/refund takes 1 key and 2 arguments')
end
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local limit, op, interval = KEYS[1], ARGV[1], whole(ARGV[2])
if not interval then
  return redis.error_reply('ARGUMENT limit/refund: interval is a whole number')
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

local row = redis.call('HMGET', limit, 'tat', 'charged')
local ops, times, bases, count, found = {}, {}, {}, 0, nil
for old, at, base in string.gmatch(row[2] or '', charged_entry) do
  if old == op then
    found = { count, tonumber(base) }
  else
    count = count + 1
    ops[count], times[count], bases[count] = old, tonumber(at), tonumber(base)
  end
end
if not found then
  return { 'NONE' }
end

-- What came after it is charged again from where it stood, in its order.
local tat = found[2]
for i = found[1], 1, -1 do
  bases[i] = math.max(tat, times[i] * 1000)
  tat = bases[i] + interval
end
local charged = {}
for i = 1, count do
  charged[i] = charged_text(ops[i], times[i], bases[i])
end
tat = math.min(tat, whole(row[1]) or 0)
if count == 0 and tat <= now * 1000 then
  redis.call('DEL', limit)
  return { 'REFUNDED' }
end
redis.call('HSET', limit, 'tat', string.format('%.0f', tat), 'charged', table.concat(charged, ' '))
return { 'REFUNDED' }
