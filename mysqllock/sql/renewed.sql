-- Which leases run, after a renewal that changed fewer rows than it named. It locks, not for the lock's sake, but
-- because it then reads what is committed now, and because proxies send it to the server that takes the writes. The
-- limit is above any batch: it overrides a session's sql_select_limit.
SELECT owner FROM {table} FORCE INDEX (PRIMARY)
WHERE name IN ({name}) AND owner IN ({owner}) AND expires > {now}
LIMIT 100000 FOR UPDATE
