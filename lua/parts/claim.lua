-- Who holds a place (R-40): the player, what the place was promised by, how long it lasts in ms, blanks between. A build
-- that does not know this names the player alone, and leaves no such time behind.
local function claim_of(player, promised_by, lasts)
  return lasts and player .. ' ' .. promised_by .. ' ' .. lasts or player
end
