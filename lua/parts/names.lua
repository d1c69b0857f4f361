-- What no player can be called was written by hand, and so was a ticket that is no text.
local function is_name(member, is_ticket)
  if not string.find(member, is_ticket and '[^%w%p%s%c]' or '[^%w%p]') then
    return is_ticket or (member ~= '' and #member <= 128)
  end
  local at, size, most = 1, #member, is_ticket and 1024 or 128
  while at <= size and size <= most do
    local code = string.byte(member, at)
    local more = code < 128 and 0 or code < 194 and 4 or code < 224 and 1 or code < 240 and 2 or code < 245 and 3 or 4
    if at + more > size then
      return false
    end
    code = code < 128 and code or code % 2 ^ (6 - more)
    for i = at + 1, at + more do
      local byte = string.byte(member, i)
      if byte < 128 or byte > 191 then
        return false
      end
      code = code * 64 + byte - 128
    end
    -- Longer than needed, half of a pair; in a name also control characters and blanks.
    if more > 3 or (more == 2 and code < 2048) or (more == 3 and code < 65536) or code > 1114111
      or (code >= 55296 and code <= 57343) or not is_ticket and (code <= 32 or (code >= 127 and code <= 160)
      or code == 5760 or (code >= 8192 and code <= 8202) or code == 8232 or code == 8233 or code == 8239
      or code == 8287 or code == 12288) then
      return false
    end
    at = at + more + 1
  end
  return size <= most
end
