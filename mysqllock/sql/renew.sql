-- Renews many leases that have not ended. An owner appears on the row of its own name only, so two lists do the work
-- of a list of pairs, and the first is served by the primary key. Without the hint a small table would be scanned,
-- which locks every row of it.
UPDATE {table} FORCE INDEX (PRIMARY) SET expires = GREATEST(expires, {now} + {ttl})
WHERE name IN ({name}) AND owner IN ({owner}) AND expires > {now}
