-- The weights of a line's lanes, out of whole numbers with blanks between.
local function weights_of(text)
  local found = {}
  for weight in string.gmatch(text, '%d+') do
    found[#found + 1] = math.max(1, tonumber(weight))
  end
  return found
end
