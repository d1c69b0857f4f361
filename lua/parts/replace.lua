-- What a row's token has become that was over before it is replaced.
local function ending_of(token_state)
  return string.match(token_state or '', '^[%u_]+$') or 'UNKNOWN'
end
-- Writes a PENDING token over the old row: fields id, state, server, server_epoch, request, attempt, expires_at, previous,
-- cancelled, consume_op and reason. It keeps the last four endings and the marks of cancels.
local function replace_token(old, ending, old_due, fresh)
  local previous, cancelled, old_server = old[8] or '', old[9] or '', old[3]
  if old[1] then
    local op = old[10] or (ending == 'RELEASED' and old[11] == 'cancelled' and 'cancelled') or '-'
    local endings = { string.format('%s:%s:%s:%s:%.0f', old[1], ending, op, old[5] or '-', whole(old[6]) or 0) }
    for entry in string.gmatch(previous, '[^ ]+') do
      if #endings < 4 then
        endings[#endings + 1] = entry
      end
    end
    previous = table.concat(endings, ' ')
  end
  if old[1] or cancelled ~= '' then
    redis.call('DEL', token)
  end
  if previous ~= '' then
    redis.call('HSET', token, 'previous', previous)
  end
  if cancelled ~= '' then
    redis.call('HSET', token, 'cancelled', cancelled)
  end
  if is_open(old[2]) then
    if old_due ~= due then
      redis.call('ZREM', old_due, player)
      unlist_empty(old_due, servers, old_server)
    end
    redis.call('PUBLISH', channel, 'ended ' .. player .. ' ' .. old[1] .. ' ' .. old_server .. ' ' .. ending)
  end
  redis.call('ZADD', due, string.format('%.0f', math.min(fresh.expires_at, now + reanimate_ms)), player)
  redis.call('SADD', servers, server)
  redis.call('HSET', token, 'id', id, 'state', 'PENDING', 'player', player, 'server', server, 'server_epoch', server_epoch,
    'request', request, 'attempt', fresh.attempt, 'payload', fresh.payload, 'issued_at', fresh.issued_at, 'expires_at',
    fresh.expires_text, 'v', fresh.v, 'sig', fresh.sig)
  redis.call('PEXPIREAT', token, string.format('%.0f', fresh.expires_at + audit_ms))
end
