-- queue/leave: takes a player out of a line, at once or with the place kept for a while, and ends an unspent pass.
--
-- KEYS 1 lines                       set, the lines that hold tickets
--      2 line:<line>                 zset, player -> lane * 2^42 + sequence
--      3 tickets:<line>              hash, player -> ticket
--      4 away:<line>                 zset, player -> when the place goes
--      5 vias:<line>                 set, the holders that have a via: set
--      6 via:<line>:<holder>         set, players whose ticket the holder of ARGV 4 holds
--      7 pass:<line>:<player>        hash
--      8 held:<server>               zset, of ARGV 6 (KEYS 4 where there is none)
--      9 held:<link>                 zset, of ARGV 7 (KEYS 4 where there is none)
-- ARGV 1 line, 2 player, 3 session, 4 holder (<proxy>:<epoch>), 5 graceMs (0: the place goes at once), 6 server of the
--      pass as last seen (empty for none), 7 its link (empty for none), 8 channel
-- Answers LEFT                    the place is gone, or the pass is over
--         AWAY                    the place is kept for graceMs
--         OTHER                   another session holds the ticket or the pass: nothing was done
--         NONE                    neither a ticket nor an unspent pass
--         NEED <kind> <a> <b>     holder <holder>, or places <server> <link>: their keys have to be passed
-- Events  left <line> <player>
-- Bound   one player.
-- Repeat  what has left is answered NONE, a place that is kept already AWAY.
-- Example EVALSHA <sha> 9 maitred:{eu}:lines maitred:{eu}:line:login maitred:{eu}:tickets:login maitred:{eu}:away:login
--         maitred:{eu}:vias:login maitred:{eu}:via:login:p1:1796000000000 maitred:{eu}:pass:login:alice
--         maitred:{eu}:held:b1 maitred:{eu}:away:login login alice s1 p1:1796000000000 30000 b1 "" maitred:{eu}:events:line
if #KEYS ~= 9 or #ARGV ~= 8 then
  return redis.error_reply('ARITY queue/leave takes 9 keys and 8 arguments')
end
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local lines, line, tickets, away, vias, via = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local pass, server_held, link_held = KEYS[7], KEYS[8], KEYS[9]
local name, player, session, holder, grace_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], whole(ARGV[5])
if not grace_ms then
  return redis.error_reply('ARGUMENT queue/leave: graceMs is a whole number')
end

-- part time
local time = redis.call('TIME')
-- Milliseconds cut out as text: cheaper than arithmetic and %.0f, and the same digits on every Lua.
local now_text = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now = tonumber(now_text)
-- end part
-- part claim
-- Who holds a place (R-40): the player, what the place was promised by, how long it lasts in ms, blanks between. A build
-- that does not know this names the player alone, and leaves no such time behind.
local function claim_of(player, promised_by, lasts)
  return lasts and player .. ' ' .. promised_by .. ' ' .. lasts or player
end
-- end part
-- part ticket
-- A ticket's sequence, lane, holder (<proxy>:<epoch>) and session; nothing of a text that is none.
local function read_ticket(text)
  local seq_text, lane_text, node_id, node_epoch, held_for =
    string.match(text or '', '^(%d+) (%d+) ([^ ]+) (%d+) ([^ ]+) ')
  return seq_text, lane_text, node_id and node_id .. ':' .. node_epoch, held_for
end
-- end part
-- part index
-- An index names the sets that hold something: takes one that is empty out of it. An index of another type stays as it is:
-- whoever calls this has written before, and must not end in the middle. True where the set is empty.
local function unlist_empty(set_key, index_key, entry)
  if redis.call('EXISTS', set_key) == 0 then
    local taken = redis.pcall('SREM', index_key, entry)
    if type(taken) == 'table' and not string.find(taken.err or '', 'WRONGTYPE', 1, true) then
      redis.call('SREM', index_key, entry)
    end
    return true
  end
  return false
end
-- end part

local ticket = redis.call('HGET', tickets, player)
if ticket then
  local _, _, held_by, held_for = read_ticket(ticket)
  if held_for ~= session then
    return { 'OTHER' }
  end
  if held_by ~= holder then
    return { 'NEED', 'holder', held_by }
  end
  if redis.call('ZSCORE', away, player) and grace_ms > 0 then
    return { 'AWAY' }
  end
  -- Looked at before anything is written, so that a key of another type changes nothing.
  redis.call('SCARD', via)
  local void = redis.call('HGET', pass, 'void')
  redis.call('ZREM', line, player)
  redis.call('SREM', via, player)
  unlist_empty(via, vias, holder)
  if grace_ms > 0 then
    redis.call('ZADD', away, string.format('%.0f', now + grace_ms), player)
    return { 'AWAY' }
  end
  redis.call('ZREM', away, player)
  redis.call('HDEL', tickets, player)
  if void then
    redis.call('DEL', pass)
  end
  -- A wait line stays listed until a sweep takes its gate away too: nobody's config names it.
  if redis.call('EXISTS', tickets) == 0 and name ~= 'wait' and string.sub(name, 1, 5) ~= 'wait.' then
    redis.call('SREM', lines, name)
  end
  redis.call('PUBLISH', ARGV[8], 'left ' .. name .. ' ' .. player)
  return { 'LEFT' }
end

local standing = redis.call('HMGET', pass, 'session', 'server', 'link', 'redeemed_at', 'arrived_at', 'void',
  'held', 'serial')
if not standing[1] or standing[4] or standing[5] or standing[6] then
  return { 'NONE' }
end
if standing[1] ~= session then
  return { 'OTHER' }
end
if grace_ms > 0 then
  return { 'NONE' }
end
if (standing[2] or '') ~= ARGV[6] or (standing[3] or '') ~= ARGV[7] then
  return { 'NEED', 'places', standing[2] or '', standing[3] or '' }
end
local claim = claim_of(player, name .. ':' .. (standing[8] or ''), standing[7])
redis.call('ZCARD', server_held)
redis.call('ZCARD', link_held)
redis.call('DEL', pass)
redis.call('ZREM', server_held, claim)
redis.call('ZREM', link_held, claim)
return { 'LEFT' }
