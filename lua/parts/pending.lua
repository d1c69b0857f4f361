-- A PENDING token where the player has none any more. The indexes go first (R-36).
redis.call('ZADD', due, string.format('%.0f', math.min(expires_at, now + reanimate_ms)), player)
redis.call('SADD', servers, server)
redis.call('HSET', token, 'id', id, 'state', 'PENDING', 'player', player, 'server', server, 'server_epoch', server_epoch,
  'request', request, 'attempt', attempt_text, 'payload', payload, 'issued_at', issued_text, 'expires_at', expires_text,
  'v', row_v, 'sig', row_sig)
redis.call('PEXPIREAT', token, string.format('%.0f', expires_at + audit_ms))
