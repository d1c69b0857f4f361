-- One charged operation of a limit: <operation>:<ms>:<µs that the charge counts from>.
local charged_entry = '([^ :]+):(%d+):(%d+)'
local function charged_text(op, at, base)
  return op .. ':' .. string.format('%.0f', at) .. ':' .. string.format('%.0f', base)
end
