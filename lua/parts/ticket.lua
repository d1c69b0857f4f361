-- A ticket's sequence, lane, holder (<proxy>:<epoch>) and session; nothing of a text that is none.
local function read_ticket(text)
  local seq_text, lane_text, node_id, node_epoch, held_for =
    string.match(text or '', '^(%d+) (%d+) ([^ ]+) (%d+) ([^ ]+) ')
  return seq_text, lane_text, node_id and node_id .. ':' .. node_epoch, held_for
end
