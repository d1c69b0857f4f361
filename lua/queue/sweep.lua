-- queue/sweep: looks after places of a line: those of dead holders, those kept long enough, and index entries without a row.
--
-- KEYS 1 lines                  set, the lines that hold tickets
--      2 line:<line>            zset, player -> lane * 2^42 + sequence
--      3 tickets:<line>         hash, player -> ticket
--      4 away:<line>            zset, player -> when the place goes
--      5 gate:<line>            hash
--      6 vias:<line>            set, the holders that have a via: set
--      7 via:<line>:<holder>    set, players whose ticket that holder holds (KEYS 6 of no use where there is none)
--      8 node:<proxy>           hash, the holder's row (KEYS 3 where there is none)
-- ARGV 1 line, 2 holder (<proxy>:<epoch>, empty for none), 3 graceMs, 4 channel, 5 keep (1: the gate of a configured line
--      stays; 0: it goes with the last ticket), 6 empty (1: every player of the list is put out), 7 players (0 to 256
--      netstrings)
-- Answers SWEPT <holder> <word>...  holder: ALIVE or DEAD; a word a player: OUT, AWAY, HEALED (an index entry was put
--                                   right), KEPT
-- Events  left <line> <player>
-- Bound   256 players a call.
-- Repeat  what was swept is in order and is answered KEPT or HEALED.
-- Example EVALSHA <sha> 8 maitred:{eu}:lines maitred:{eu}:line:login maitred:{eu}:tickets:login maitred:{eu}:away:login
--         maitred:{eu}:gate:login maitred:{eu}:vias:login maitred:{eu}:via:login:p1:1796000000000 maitred:{eu}:node:p1 login
--         p1:1796000000000 30000 maitred:{eu}:events:line 1 0 5:alice,3:bob,
if #KEYS ~= 8 or #ARGV ~= 7 then
  return redis.error_reply('ARITY queue/sweep takes 8 keys and 7 arguments')
end
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local lines, line, tickets, away, gate = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local vias, via, node = KEYS[6], KEYS[7], KEYS[8]
local name, holder, grace_ms, keep, empty = ARGV[1], ARGV[2], whole(ARGV[3]), ARGV[5] == '1', ARGV[6] == '1'
local players = {}
local at = 1
while at <= #ARGV[7] do
  local length = string.match(ARGV[7], '^(%d+):', at)
  if not length then
    break
  end
  local from = at + #length + 1
  at = from + tonumber(length) + 1
  players[#players + 1] = string.sub(ARGV[7], from, at - 2)
end
if not grace_ms or #players > 256 then
  return redis.error_reply('ARGUMENT queue/sweep: graceMs is a whole number, and players are at most 256')
end

-- part time
local time = redis.call('TIME')
-- Milliseconds cut out as text: cheaper than arithmetic and %.0f, and the same digits on every Lua.
local now_text = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now = tonumber(now_text)
-- end part
-- part lease
-- How long a node's lease lasts still, in ms: below 0 it is over, and so it is where the row is not in order. A beat that
-- seems to come is from before the clock stepped back (R-34).
local function lease_left(beat_at, lease_ms)
  return (whole(lease_ms) or 0) - math.abs(now - (whole(beat_at) or 0))
end
-- end part
-- part liveness
-- Whether the node lives in that epoch; if not, the answer that its own call gets.
local function alive(key, epoch)
  local row = redis.call('HMGET', key, 'epoch', 'beat_at', 'lease_ms')
  if not row[1] then
    return false, 'NO_LEASE'
  end
  if row[1] ~= epoch then
    return false, 'FENCED', row[1]
  end
  return lease_left(row[2], row[3]) >= 0, 'NO_LEASE'
end
-- end part
-- part holder
-- The epoch of a holder, <proxy>:<epoch>.
local function holder_epoch(text)
  return string.match(text, ':(%d+)$')
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
-- part names
-- What no player can be called was written by hand, and so was a ticket that is no text.
local function is_name(member, is_ticket)
  if not string.find(member, is_ticket and '[^%w%p%s%c]' or '[^%w%p]') then
    return is_ticket or (member ~= '' and #member <= 128)
  end
  local at, size, most = 1, #member, is_ticket and 1024 or 128
  while at <= size and size <= most do
    local code = string.byte(member, at)
    local more = code < 128 and 0 or code < 194 and 4 or code < 224 and 1 or code < 240 and 2 or code < 245 and 3 or 4
    if at + more > size then
      return false
    end
    code = code < 128 and code or code % 2 ^ (6 - more)
    for i = at + 1, at + more do
      local byte = string.byte(member, i)
      if byte < 128 or byte > 191 then
        return false
      end
      code = code * 64 + byte - 128
    end
    -- Longer than needed, half of a pair; in a name also control characters and blanks.
    if more > 3 or (more == 2 and code < 2048) or (more == 3 and code < 65536) or code > 1114111
      or (code >= 55296 and code <= 57343) or not is_ticket and (code <= 32 or (code >= 127 and code <= 160)
      or code == 5760 or (code >= 8192 and code <= 8202) or code == 8232 or code == 8233 or code == 8239
      or code == 8287 or code == 12288) then
      return false
    end
    at = at + more + 1
  end
  return size <= most
end
-- end part

local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local is_alive = false
if holder ~= '' then
  is_alive = alive(node, holder_epoch(holder))
  redis.call('SCARD', via)
end
local plan = {}
for i, player in ipairs(players) do
  local ticket, score = redis.call('HGET', tickets, player), redis.call('ZSCORE', line, player)
  local goes_at = redis.call('ZSCORE', away, player)
  -- A place that is kept for longer than the grace was given before the clock stepped back (R-34).
  local kept_till = whole(goes_at) or 0
  local is_over = goes_at and (kept_till <= now or kept_till > now + grace_ms + 5000)
  local step = { player = player, word = 'KEPT' }
  local _, _, held_by = read_ticket(ticket)
  if not ticket then
    step.word, step.no_line, step.no_away = 'HEALED', true, true
  elseif not is_name(player) then
    step.word, step.no_line, step.no_away, step.no_ticket, step.is_junk = 'HEALED', true, true, true, true
  elseif empty or (is_over and not score) then
    step.word, step.no_line, step.no_away, step.no_ticket = 'OUT', true, true, true
  elseif score and holder ~= '' and held_by == holder and not is_alive then
    step.word, step.no_line, step.goes_at = 'AWAY', true, now + grace_ms
  elseif score and goes_at then
    step.word, step.no_away = 'HEALED', true
  elseif not score and not goes_at then
    step.word, step.goes_at = 'HEALED', now + grace_ms
  elseif holder ~= '' and held_by ~= holder then
    step.word = 'HEALED'
  end
  -- Only who waits is held by somebody.
  step.add_via = score and not step.no_line and held_by == holder
  plan[i] = step
end
local state = redis.call('HMGET', gate, 'seq', 'serial', 'paused')

local answer = { 'SWEPT', is_alive and 'ALIVE' or 'DEAD' }
for _, step in ipairs(plan) do
  answer[#answer + 1] = step.word
  if step.no_line then
    redis.call('ZREM', line, step.player)
  end
  if step.no_away then
    redis.call('ZREM', away, step.player)
  end
  if step.goes_at then
    redis.call('ZADD', away, string.format('%.0f', step.goes_at), step.player)
  end
  if step.no_ticket then
    redis.call('HDEL', tickets, step.player)
    if not step.is_junk then
      redis.call('PUBLISH', ARGV[4], 'left ' .. name .. ' ' .. step.player)
    end
  end
  if step.add_via then
    redis.call('SADD', via, step.player)
  elseif holder ~= '' then
    redis.call('SREM', via, step.player)
  end
end
if holder ~= '' then
  if redis.call('EXISTS', via) == 1 then
    redis.call('SADD', vias, holder)
  else
    redis.call('SREM', vias, holder)
  end
end
if redis.call('EXISTS', tickets) == 1 then
  redis.call('SADD', lines, name)
else
  redis.call('SREM', lines, name)
  -- A sequence or serial ahead of the clock would be given again.
  if not keep and not state[3] and (whole(state[1]) or 0) <= now and (whole(state[2]) or 0) <= now_us then
    redis.call('DEL', gate)
  end
end
return answer
