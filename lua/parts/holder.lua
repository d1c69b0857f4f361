-- The epoch of a holder, <proxy>:<epoch>.
local function holder_epoch(text)
  return string.match(text, ':(%d+)$')
end
