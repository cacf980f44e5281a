-- Gives the name back if it is held: one row, or none. It tells the first of those who wait, if there are any. A NOTIFY
-- has all commits that send one wait for each other, so there is none without need.
WITH freed AS (
  UPDATE {table} SET released = true, expires = {now}, {next} FROM {bounded}
  WHERE name = $1::bytea AND owner = $2::bytea AND NOT released AND expires > {now} RETURNING woken)
SELECT true, {tell} FROM freed
