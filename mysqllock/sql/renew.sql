-- Renews many leases that have not ended, passing over rows that another transaction has locked: to wait for one would keep
-- the others locked meanwhile. It hands the clock's reading to the client if it finds any. An owner appears on the row
-- of its own name only, so two lists do the work of a list of pairs, and the first is served by the primary key.
--
-- The limit keeps the inner statement from being merged into the outer one. The hints and STRAIGHT_JOIN keep the table
-- from being scanned: a scan would lock, or wait for, every row of it.
UPDATE (SELECT name FROM {table} FORCE INDEX (PRIMARY)
  WHERE name IN ({name}) AND owner IN ({owner}) AND expires > {now}
  LIMIT 100000 FOR UPDATE SKIP LOCKED) AS mine
STRAIGHT_JOIN {table} AS t FORCE INDEX (PRIMARY) ON t.name = mine.name
SET t.expires = IF(LAST_INSERT_ID({now}) > 0, GREATEST(t.expires, {now} + {ttl}), t.expires)
