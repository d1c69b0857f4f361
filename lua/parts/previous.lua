-- One of the last four tokens that a player's row keeps: <id>:<ending>:<operation>:<request>:<attempt>.
local previous_entry = '([^ :]+):([^ :]+):([^ :]+):([^ :]+):(%d+)'
