-- Renews one lease that has not ended: one row, or none. It waits for the row, and has nothing else locked meanwhile.
UPDATE {table} SET expires = greatest(expires, {now} + {us} * $3::bigint) FROM {bounded}
WHERE name = $1::bytea AND owner = $2::bytea AND NOT released AND expires > {now} RETURNING true
