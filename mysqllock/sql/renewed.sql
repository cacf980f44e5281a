-- Which leases were renewed, by a renewal that changed fewer rows than it named: those that end after its reading of the
-- clock, for nobody else prolongs them. The clock of this statement would not do: it may have gone back since. It locks,
-- not for the lock's sake, but because it then reads what is committed now, and because proxies send it to the server
-- that takes the writes. The limit is above any batch: it overrides a session's sql_select_limit.
SELECT owner FROM {table} FORCE INDEX (PRIMARY)
WHERE name IN ({name}) AND owner IN ({owner}) AND expires > {renewed}
LIMIT 100000 FOR UPDATE
