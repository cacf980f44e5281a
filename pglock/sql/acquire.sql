-- Takes the name if it is free: one row with the token, or none. The same claim gets its name again, with the token
-- that it had unless $5 asks for a fresh one, and a lease that is never shorter.
--
-- clock_timestamp is the time of its reading, where now() is that of the start of the transaction. An update reads it
-- with the row locked, after all waiting. Only what is inserted was read before: if the insert had to wait, the second
-- column, true, has the caller ask again. A new row's token is the clock's reading, so that it rises above that of a row
-- that was swept, or that a failover lost.
--
-- If the waiter that was told of the release has not come within a second, it is dead, and others on the list may be, too:
-- the list begins anew, with those that live, at their next look.
--
-- A name that is seen to be held is not touched: the look costs no lock and no write.
INSERT INTO {table} AS t (name, owner, token, expires, acquired, released, waiters, woken, holder, undone)
SELECT $1::bytea, $2::bytea, {token}, {now} + {us} * $4::bigint, {now}, false, '', '', $3::bytea, ''
FROM {bounded}
WHERE NOT EXISTS (SELECT FROM {table} h WHERE h.name = $1 AND h.owner <> $2 AND NOT h.released AND h.expires > {now})
ON CONFLICT (name) DO UPDATE SET
  token    = CASE WHEN t.owner = $2 AND NOT t.released AND NOT $5::boolean THEN t.token ELSE greatest(t.token + 1, {token}) END,
  expires  = CASE WHEN t.owner = $2 AND NOT t.released THEN greatest(t.expires, {now} + {us} * $4) ELSE {now} + {us} * $4 END,
  acquired = CASE WHEN t.owner = $2 AND NOT t.released THEN t.acquired ELSE {now} END,
  waiters  = CASE WHEN t.released AND t.woken <> '' AND t.woken <> $2 AND t.expires < {now} - interval '1 second' THEN '' ELSE {others} END,
  owner    = $2,
  released = false,
  holder   = $3
WHERE (t.owner = $2 OR t.released OR t.expires <= {now}) AND position($2 in t.undone) = 0
RETURNING t.token, t.xmax = 0, {acquired}
