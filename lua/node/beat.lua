-- node/beat: renews a node's lease with its newest row, in the roster and on the node channel.
--
-- KEYS 1 node:<id>     hash, the row
--      2 nodes:<role>  zset, the roster of the role
--      3 roles         set, the roles that have a roster
--      4 control       hash, kill switch, drain and config entries
--      5 held:<id>     zset, places promised or taken whose players the row's count does not include yet
-- ARGV 1 id, 2 role, 3 epoch, 4 incarnation, 5 seq, 6 sent_at (store ms), 7 state, 8 accepting, 9 kill, 10 players,
--      11 soft_cap, 12 load (JSON), 13 services (JSON), 14 labels (JSON), 15 sig, 16 lease ms, 17 channel,
--      18 event (the row in wire form), 19 bytes of control kill as last seen (empty for none),
--      20 bytes of control kill:<id>, 21 bytes of control drain:<id>, 22 the last 64 bytes of control config (its
--      signature stands there), 23 arrivals that ARGV 10 includes for the first time (0 to 256 entries of KEYS 5 as they
--      stand there, a line feed between)
-- Answers BEAT <now> <0|1> [held]   renewed; 1: the control entries are not the ones last seen; how many entries of KEYS 5
--                                   are left
--         GONE <now>                there is no row: join again
--         FENCED <epoch> <addr>     another incarnation holds the id
--         SKEW <now>                sent_at is off by more than 5 s
-- Events  the row in wire form
-- Bound   one row, 256 arrivals, and the held entries whose time is over. A beat never creates a row.
-- Repeat  a sequence number not above the row's is answered BEAT and writes nothing.
-- Example EVALSHA <sha> 5 maitred:{eu}:node:p1 maitred:{eu}:nodes:proxy maitred:{eu}:roles maitred:{eu}:control
--         maitred:{eu}:held:p1 p1 proxy 1796000000000 inc1 7 1796000001000 ready 1 0 12 200 {} [] {} 5ebd00f2.xxx 3500
--         maitred:{eu}:events:node row "" "" "" "" "alice login:1796000000000000 60000"
if #KEYS ~= 5 or #ARGV ~= 23 then
  return redis.error_reply('ARITY node/beat takes 5 keys and 23 arguments')
end
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local row_key, roster, roles, control, held = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, role, epoch, incarnation = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local seq, sent_at = whole(ARGV[5]), whole(ARGV[6])
if not (seq and sent_at and whole(ARGV[16])) then
  return redis.error_reply('ARGUMENT node/beat: seq, sent_at and lease are whole numbers')
end
local arrivals = {}
if ARGV[23] ~= '' then
  for claim in string.gmatch(ARGV[23], '[^%c]+') do
    arrivals[#arrivals + 1] = claim
  end
  if #arrivals > 256 then
    return redis.error_reply('ARGUMENT node/beat: arrivals are at most 256')
  end
end

-- part time
local time = redis.call('TIME')
-- Milliseconds cut out as text: cheaper than arithmetic and %.0f, and the same digits on every Lua.
local now_text = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now = tonumber(now_text)
-- end part
-- part skew
-- Whether the clock that a signed time came from is not the store's.
local function is_skewed(signed_at)
  return math.abs(signed_at - now) > 5000
end
-- end part

local row = redis.call('HMGET', row_key, 'epoch', 'incarnation', 'seq', 'addr')
if not row[1] then
  return { 'GONE', now_text }
end
if row[1] ~= epoch or row[2] ~= incarnation then
  return { 'FENCED', row[1], row[4] or '' }
end
local changed, holding = '0', false
-- Most nodes have neither control entries in their zone nor promised places, and one question tells both.
if ARGV[19] ~= '' or ARGV[20] ~= '' or ARGV[21] ~= '' or ARGV[22] ~= '' or redis.call('EXISTS', control, held) > 0 then
  local entries = redis.call('HMGET', control, 'kill', 'kill:' .. id, 'drain:' .. id, 'config')
  if (entries[1] or '') ~= ARGV[19] or (entries[2] or '') ~= ARGV[20] or (entries[3] or '') ~= ARGV[21]
    or string.sub(entries[4] or '', -64) ~= ARGV[22] then
    changed = '1'
  end
  holding = redis.call('ZCARD', held) > 0
end
if seq <= (whole(row[3]) or -1) then
  return { 'BEAT', now_text, changed }
end
if is_skewed(sent_at) then
  return { 'SKEW', now_text }
end
local counted, left = {}, '0'
if holding then
  local count = redis.call('ZCOUNT', held, '(' .. now_text, '+inf')
  for _, claim in ipairs(arrivals) do
    local goes_at = redis.call('ZSCORE', held, claim)
    if goes_at then
      counted[#counted + 1] = claim
      count = count - ((whole(goes_at) or 0) > now and 1 or 0)
    end
  end
  left = string.format('%.0f', count)
end

redis.call('ZADD', roster, now_text, id)
redis.call('SADD', roles, role)
redis.call('HSET', row_key, 'seq', ARGV[5], 'sent_at', ARGV[6], 'beat_at', now_text, 'lease_ms', ARGV[16],
  'state', ARGV[7], 'accepting', ARGV[8], 'kill', ARGV[9], 'players', ARGV[10], 'soft_cap', ARGV[11],
  'load', ARGV[12], 'services', ARGV[13], 'labels', ARGV[14], 'sig', ARGV[15], 'claims', '1')
redis.call('PEXPIRE', row_key, ARGV[16])
if holding then
  redis.call('ZREMRANGEBYSCORE', held, '-inf', now_text)
  for _, claim in ipairs(counted) do
    redis.call('ZREM', held, claim)
  end
end
redis.call('PUBLISH', ARGV[17], ARGV[18])
return { 'BEAT', now_text, changed, left }
