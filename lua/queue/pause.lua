-- queue/pause: stops or resumes the admission of a line; players go on entering.
--
-- KEYS 1 gate:<line>  hash
-- ARGV 1 line, 2 paused (1 or 0), 3 channel
-- Answers PAUSED <now>   nobody is admitted
--         RESUMED <now>  the gate rules again
-- Events  paused <line>, resumed <line>
-- Bound   one line.
-- Repeat  the same state again changes nothing.
-- Example EVALSHA <sha> 1 maitred:{eu}:gate:login login 1 maitred:{eu}:events:line
if #KEYS ~= 1 or #ARGV ~= 3 then
  return redis.error_reply('ARITY queue/pause takes 1 key and 3 arguments')
end
local gate, name, paused = KEYS[1], ARGV[1], ARGV[2]

-- part time
local time = redis.call('TIME')
-- Milliseconds cut out as text: cheaper than arithmetic and %.0f, and the same digits on every Lua.
local now_text = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now = tonumber(now_text)
-- end part

if paused == '1' then
  -- A second one says nothing of when players stopped being admitted.
  if redis.call('HGET', gate, 'paused') ~= '1' then
    redis.call('HSET', gate, 'paused', '1', 'paused_at', now_text)
  end
  redis.call('PUBLISH', ARGV[3], 'paused ' .. name)
  return { 'PAUSED', now_text }
end
if redis.call('HGET', gate, 'paused') == '1' then
  -- The time of the pause says nothing of the pace.
  redis.call('HSET', gate, 'busy', now_text, 'recent', '')
end
redis.call('HDEL', gate, 'paused', 'paused_at')
redis.call('PUBLISH', ARGV[3], 'resumed ' .. name)
return { 'RESUMED', now_text }
