-- Takes a named lock if nobody has it, for the holder of the name: 1 or 0. A holder that was broken meanwhile must not
-- have it: Break ends what was taken before, and nobody would release this before the next renewal.
SELECT IF((SELECT COUNT(*) FROM {table} WHERE name = {name} AND owner = {owner} AND expires > {now}),
  COALESCE(GET_LOCK({lock}, 0), 0), 0)
