-- Places of a node that are neither taken, promised nor reserved; a soft cap of 0 is none.
local function unclaimed(players, soft_cap, held_key, due_key)
  local promised = redis.call('ZCOUNT', held_key, '(' .. now_text, '+inf') + redis.call('ZCARD', due_key)
  local cap = whole(soft_cap) or 0
  return cap == 0 and 1000000 or cap - (whole(players) or 0) - promised
end
