-- How long the leases of a batch last after the reading of the clock of a renewal that changed fewer rows than it
-- named: those that were renewed last for their TTL at the least. The clock of this statement would not do: it may have
-- gone back since. It locks, not for the lock's sake, but because it then reads what is committed now, and because
-- proxies send it to the server that takes the writes. A locked row is passed over, and its lease renewed alone. The
-- limit is above any batch: it overrides a session's sql_select_limit.
SELECT owner, expires - {renewed} FROM {table} FORCE INDEX (PRIMARY)
WHERE name IN ({name}) AND owner IN ({owner}) AND expires > {renewed}
LIMIT 100000 FOR UPDATE SKIP LOCKED
