-- Takes the old row away: fields id, state, server, server_epoch, request, attempt, expires_at, previous, cancelled,
-- consume_op and reason. The last four endings and the marks of cancels stay.
local function retire_token(old, ending, old_due)
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
end
