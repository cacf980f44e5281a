-- Takes the lock away from the holder that has this token: one row, or none.
WITH freed AS (
  UPDATE {table} SET owner = '', released = true, expires = {now}, {next} FROM {bounded}
  WHERE name = $1::bytea AND token = $2::bigint AND NOT released AND expires > {now} RETURNING woken)
SELECT true, {tell} FROM freed
