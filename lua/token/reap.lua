-- token/reap: one sweep over tokens of a server that are due: expires, reopens claims of the dead, heals the index.
--
-- KEYS 1 due:<server>    zset, player -> next time someone must look
--      2 due             set, the servers that have a due: set
--      then a pair for each token: token:<player> (KEYS 1 again where no player can be called so), node:<claimant> (KEYS 1
--      again where it was read unclaimed)
-- ARGV 1 server, 2 claimReanimateMs, 3 auditMs, 4 channel, 5 dry run (1: decide, write nothing), 6 until when a claimant may
--      be taken for dead (store ms; a claim is SKIPPED after that), then a pair for each token: player, claimant as read (empty for none); 0 to 256 pairs
-- Answers REAPED <word>...  one a token: EXPIRED, REOPENED, KEPT (looked at again later), HEALED (index entry without
--                           a token), SKIPPED (not due, or changed since it was read)
-- Events  ended <player> <id> <server> EXPIRED, reopened <player> <id> <server>
-- Bound   256 tokens a call.
-- Repeat  what was reaped is no longer due and is answered SKIPPED.
-- Example EVALSHA <sha> 4 maitred:{eu}:due:b1 maitred:{eu}:due maitred:{eu}:token:alice maitred:{eu}:node:p1
--         b1 5000 60000 maitred:{eu}:events:token 0 1796000003000 alice p1
local count = (#ARGV - 6) / 2
if count < 0 or count ~= math.floor(count) or count > 256 or #KEYS ~= 2 + 2 * count then
  return redis.error_reply('ARITY token/reap takes 2 keys and 6 arguments, and two of each for up to 256 tokens')
end
-- part digits
-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex. Of digits the sum is the number,
-- for half of what a call of tonumber costs.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and text + 0 or nil
end
-- end part
local due, servers = KEYS[1], KEYS[2]
local server, reanimate_ms, audit_ms, channel, dry, judge_until =
  ARGV[1], whole(ARGV[2]), whole(ARGV[3]), ARGV[4], ARGV[5] == '1', whole(ARGV[6])
if not (reanimate_ms and audit_ms and judge_until) then
  return redis.error_reply('ARGUMENT token/reap: claimReanimateMs, auditMs and the time of judgement are whole numbers')
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
-- part lasting
-- Whether the time of a token is still to come. One that was issued later than now is from before the clock stepped back, and
-- over (R-34); without its times it has none.
local function is_lasting(issued, expires)
  local from, till = whole(issued), whole(expires)
  return from and till and now < till and from - now <= 10000
end
-- end part
-- part open
-- Whether a token in that state has not ended; its time may be over all the same.
local function is_open(token_state)
  return token_state == 'PENDING' or token_state == 'CLAIMED'
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

local plan = {}
for i = 1, count do
  local token, claimant_node = KEYS[1 + 2 * i], KEYS[2 + 2 * i]
  local player, claimant = ARGV[5 + 2 * i], ARGV[6 + 2 * i]
  local score = redis.call('ZSCORE', due, player)
  local step = { word = 'SKIPPED', token = token, player = player }
  local look_at = whole(score) or 0
  -- So far ahead it may have been set before the clock stepped back (R-34).
  local is_due, is_far = look_at <= now, look_at > now + reanimate_ms + 5000
  if score and (is_due or is_far) then
    local row = token == due and {} or redis.call('HMGET', token, 'id', 'state', 'server', 'expires_at', 'claimant',
      'claimant_epoch', 'claimed_at', 'claim_op', 'claim_sig', 'reopened', 'issued_at')
    local state = row[2]
    local expires_at = whole(row[4]) or 0
    step.id, step.row = row[1], row
    if not row[1] or row[3] ~= server or not is_open(state) then
      step.word = 'HEALED'
    elseif not is_lasting(row[11], row[4]) then
      step.word = 'EXPIRED'
    elseif not is_due then
      step.word = 'SKIPPED'
    elseif state == 'PENDING' then
      step.word, step.at = 'KEPT', math.min(expires_at, now + reanimate_ms)
    elseif row[5] == claimant and now <= judge_until then
      local reopen_at = (whole(row[7]) or 0) + reanimate_ms
      local lease_end = 0
      if row[6] ~= '0' then
        local node = redis.call('HMGET', claimant_node, 'epoch', 'beat_at', 'lease_ms')
        local left = lease_left(node[2], node[3])
        if node[1] == row[6] and left >= 0 then
          lease_end = now + math.max(left, 1)
        end
      end
      if lease_end == 0 and reopen_at <= now then
        step.word, step.at = 'REOPENED', math.min(expires_at, now + reanimate_ms)
      else
        step.word, step.at = 'KEPT', math.min(expires_at, math.max(lease_end, math.min(reopen_at, now + reanimate_ms)))
      end
    end
  end
  plan[i] = step
end

local answer = { 'REAPED' }
for i, step in ipairs(plan) do
  answer[1 + i] = step.word
  if not dry then
    if step.word == 'EXPIRED' or step.word == 'HEALED' then
      redis.call('ZREM', due, step.player)
    end
    if step.word == 'EXPIRED' then
      redis.call('HSET', step.token, 'state', 'EXPIRED')
      redis.call('PEXPIRE', step.token, string.format('%.0f', audit_ms))
      redis.call('PUBLISH', channel, 'ended ' .. step.player .. ' ' .. step.id .. ' ' .. server .. ' EXPIRED')
    elseif step.word == 'REOPENED' then
      local reopened = { step.row[8] or '-' }
      for op in string.gmatch(step.row[10] or '', '[^ ]+') do
        if #reopened < 4 then
          reopened[#reopened + 1] = op
        end
      end
      redis.call('HSET', step.token, 'state', 'PENDING', 'reopened', table.concat(reopened, ' '), 'last_claimant',
        step.row[5], 'last_claimant_epoch', step.row[6] or '', 'last_claimed_at', step.row[7] or '', 'last_claim_op', step.row[8] or '', 'last_claim_sig',
        step.row[9] or '')
      redis.call('HDEL', step.token, 'claimant', 'claimant_epoch', 'claimed_at', 'claim_op', 'claim_sig')
      redis.call('PUBLISH', channel, 'reopened ' .. step.player .. ' ' .. step.id .. ' ' .. server)
    end
    if step.at then
      redis.call('ZADD', due, string.format('%.0f', step.at), step.player)
    end
  end
end
if not dry and not unlist_empty(due, servers, server) then
  -- The list may have lost it.
  redis.pcall('SADD', servers, server)
end
return answer
