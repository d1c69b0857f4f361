-- Whether lines and tokens have left a place for one more token. Only where a line leads to the server (QUE-15): elsewhere its
-- inventory alone decides. A token of the player that the new one replaces gives its place.
local function has_line_place(node_key, held_key)
  local row = redis.call('HMGET', node_key, 'players', 'soft_cap')
  local places = unclaimed(row[1], row[2], held_key, due)
  return places >= 1 or places == 0 and redis.call('ZSCORE', due, player)
end
