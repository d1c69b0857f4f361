-- Whether the request is among those whose cancel came before their token: <request>@<ms>.
local function is_cancelled(marks, wanted)
  for mark in string.gmatch(marks, '([^ @]+)@') do
    if mark == wanted then
      return true
    end
  end
  return false
end
