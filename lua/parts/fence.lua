-- Whether the node's row is of that epoch; if not, the answer that its own call gets. The row is there for a lease at the
-- longest, so its beat is not looked at.
local function holds_epoch(key, epoch)
  local standing = redis.call('HGET', key, 'epoch')
  if not standing then
    return false, 'NO_LEASE'
  end
  return standing == epoch, 'FENCED', standing
end
