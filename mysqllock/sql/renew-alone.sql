-- Renews one lease that has not ended, and hands the clock's reading to the client if it has found it. It waits for the
-- row, and has nothing else locked meanwhile. Without the hint a small table might be scanned.
UPDATE {table} FORCE INDEX (PRIMARY)
SET expires = IF(LAST_INSERT_ID({now}) > 0, GREATEST(expires, {now} + {ttl}), expires)
WHERE name = {name} AND owner = {owner} AND expires > {now}
