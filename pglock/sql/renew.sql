-- Renews leases that have not ended, passing over rows that another transaction has locked: to wait for one would keep
-- the others locked meanwhile. It answers with the places, from 1, of those that it has renewed. A late request of a claim
-- may have taken the name anew, after a Break or another's hold: that is another acquisition, and is not renewed.
UPDATE {table} t SET expires = greatest(t.expires, {now} + {us} * mine.ttl) FROM (
  SELECT h.name, r.ttl, r.place
  FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[]) WITH ORDINALITY AS r (name, owner, since, ttl, place)
  JOIN {table} h ON h.name = r.name AND h.owner = r.owner AND {acquired} = r.since, {bounded}
  WHERE NOT h.released AND h.expires > {now} FOR NO KEY UPDATE OF h SKIP LOCKED) AS mine
WHERE t.name = mine.name RETURNING mine.place
