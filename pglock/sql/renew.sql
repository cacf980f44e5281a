-- Renews leases that have not ended, passing over rows that another transaction has locked: to wait for one would keep
-- the others locked meanwhile. It answers with the owners that it has renewed.
UPDATE {table} t SET expires = greatest(t.expires, {now} + {us} * mine.ttl) FROM (
  SELECT h.name, r.ttl FROM unnest($1::bytea[], $2::bytea[], $3::bigint[]) AS r (name, owner, ttl)
  JOIN {table} h ON h.name = r.name AND h.owner = r.owner
  WHERE NOT h.released AND h.expires > {now} FOR NO KEY UPDATE OF h SKIP LOCKED) AS mine
WHERE t.name = mine.name RETURNING t.owner
