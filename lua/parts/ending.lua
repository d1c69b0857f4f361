-- What a row's token has become that was over before it is replaced.
ending = string.match(state or '', '^[%u_]+$') or 'UNKNOWN'
