-- The record of the route, where it is not the caller's. The signature stands for owner, epoch and version together, at the
-- price of one field; it changes by itself only where the record was signed again with a new secret.
local function other_record(sig, owner, owner_epoch, owner_version)
  if redis.call('HGET', route, 'sig') == sig then
    return nil
  end
  local row = redis.call('HMGET', route, 'owner', 'owner_epoch', 'version')
  if row[1] == owner and row[2] == owner_epoch and row[3] == owner_version then
    return nil
  end
  return { row[1] or '', row[2] or '0', row[3] or '0' }
end
