-- Takes a claim that waited off the list. If the name is free, it may have been told so: then the next one is.
WITH freed AS (
  UPDATE {table} t SET
    woken   = CASE WHEN released OR expires <= {now} THEN substring({others} for 16) ELSE '' END,
    waiters = CASE WHEN released OR expires <= {now} THEN substring({others} from 17) ELSE {others} END
  FROM {bounded} WHERE name = $1::bytea AND owner <> $2::bytea RETURNING woken)
SELECT true, {tell} FROM freed
