-- How a token that is no longer the row ended, and by which operation.
local function ended_as(entries, token_id)
  for old_id, ending, op in string.gmatch(entries or '', previous_entry) do
    if old_id == token_id then
      return ending, op
    end
  end
end
