-- The ticket that the caller signed, at the place where the player stands; read_ticket reads it.
local function ticket_text(seq_text, lane_text)
  return table.concat({ seq_text, lane_text, proxy, proxy_epoch, session, ARGV[7], ARGV[8], ARGV[9], ARGV[10] }, ' ')
end
