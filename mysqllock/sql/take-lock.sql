-- Takes a named lock if nobody has it: 1 or 0.
SELECT COALESCE(GET_LOCK({lock}, 0), 0)
