-- Takes the lock away from the holder that has this token: one row, or none. A late request of that holder is refused.
WITH freed AS (
  UPDATE {table} SET owner = '', released = true, expires = {now}, {next},
    undone = substring(undone || owner from greatest(1, length(undone) - 495))
  FROM {bounded}
  WHERE name = $1::bytea AND token = $2::bigint AND NOT released AND expires > {now} RETURNING woken)
SELECT true, {tell} FROM freed
