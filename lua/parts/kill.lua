-- Whether other kill entries stand than those that the caller verified (R-32), and whether there are control entries at
-- all. A zone that no operator ever touched has none, and to ask for that is cheaper than to read them.
local function kill_changed(fleet_seen, first, first_seen, second, second_seen)
  if fleet_seen == '' and first_seen == '' and second_seen == '' and redis.call('EXISTS', control) == 0 then
    return false, false
  end
  local entries = redis.call('HMGET', control, 'kill', 'kill:' .. first, 'kill:' .. second)
  return (entries[1] or '') ~= fleet_seen or (entries[2] or '') ~= first_seen or (entries[3] or '') ~= second_seen, true
end
-- The kill switch that is on, by the verdicts of the caller.
local function killed_by(fleet_verdict, first, first_verdict, second, second_verdict)
  return fleet_verdict == 'on' and 'kill' or first_verdict == 'on' and 'kill:' .. first
    or second_verdict == 'on' and 'kill:' .. second or nil
end
