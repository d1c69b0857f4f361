-- An index names the sets that hold something: takes one that is empty out of it.
local function unlist_empty(set_key, index_key, entry)
  if redis.call('EXISTS', set_key) == 0 then
    redis.call('SREM', index_key, entry)
  end
end
