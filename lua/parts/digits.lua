-- A number is one only if its text is all digits (R-33): tonumber also takes nan, inf and hex.
local function whole(text)
  return text and #text <= 20 and string.find(text, '^%d+$') and tonumber(text) or nil
end
