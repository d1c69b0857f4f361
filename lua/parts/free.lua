-- The free places of a node, none of one that takes nobody; its lease as its row says it; and whether its build names the
-- claims in `held:`.
local function free(node_key, held_key, due_key, epoch)
  local row = redis.pcall('HMGET', node_key, 'epoch', 'beat_at', 'lease_ms', 'state', 'accepting', 'players', 'soft_cap',
    'claims')
  if row[1] ~= epoch or lease_left(row[2], row[3]) < 0 or row[5] ~= '1'
    or (row[4] ~= 'ready' and row[4] ~= 'degraded') then
    return 0, row[3], false
  end
  return unclaimed(row[6], row[7], held_key, due_key), row[3], row[8] == '1'
end
