-- An entry of `epochs`: the last epoch of an id, when it was last seen, and the incarnation that had it.
local function last_epoch(entry)
  local epoch_text, seen_text = string.match(entry or '', '^(%d+) ?(%d*)')
  return epoch_text, seen_text, string.match(entry or '', '^%d+ %d+ (.+)$')
end
