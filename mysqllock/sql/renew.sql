-- Renews many leases that have not ended, and hands the clock's reading to the client if it finds any. An owner appears
-- on the row of its own name only, so two lists do the work of a list of pairs, and the first is served by the primary
-- key. Without the hint a small table would be scanned, which locks every row of it.
UPDATE {table} FORCE INDEX (PRIMARY)
SET expires = IF(LAST_INSERT_ID({now}) > 0, GREATEST(expires, {now} + {ttl}), expires)
WHERE name IN ({name}) AND owner IN ({owner}) AND expires > {now}
