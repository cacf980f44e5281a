-- Renews one lease that has not ended: one row, or none. It waits for the row, and has nothing else locked meanwhile.
UPDATE {table} SET expires = greatest(expires, {now} + {us} * $4::bigint) FROM {bounded}
WHERE name = $1::bytea AND owner = $2::bytea AND {acquired} = $3::bigint AND NOT released AND expires > {now} RETURNING true
