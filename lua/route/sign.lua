-- route/sign: signs a record or an object's bytes again, as they are, after a change of the secret.
--
-- KEYS 1 route:<kind>:<object> or object:<kind>:<object>  hash
-- ARGV 1 the field that grows with every write (version or cas), 2 its value as read, 3 sig as read, 4 new sig
-- Answers SIGNED   the new signature stands there
--         CHANGED  the row is gone or another one; nothing was written
-- Events  none
-- Bound   one row.
-- Repeat  a row with the new signature is answered SIGNED.
-- Example EVALSHA <sha> 1 maitred:{eu}:route:island:i1 version 1796000001000 5ebd00f2.xxx 8d1f3a07.yyy
if #KEYS ~= 1 or #ARGV ~= 4 then
  return redis.error_reply('ARITY route/sign takes 1 key and 4 arguments')
end
local row = redis.call('HMGET', KEYS[1], ARGV[1], 'sig')
if row[1] ~= ARGV[2] or (row[2] ~= ARGV[3] and row[2] ~= ARGV[4]) then
  return { 'CHANGED' }
end

redis.call('HSET', KEYS[1], 'sig', ARGV[4])
return { 'SIGNED' }
