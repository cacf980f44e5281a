-- Is release.sql on the connection that has the named lock, and releases that while the row is still locked: the next
-- waiter is on its way while this is committed, and waits for the row if it is too early. What RELEASE_LOCK returns is of
-- no interest.
UPDATE {table} SET waited = IF(waited >= acquired AND expires > 0, {now}, waited),
  expires = IF(expires < 0, expires - 1, -{now}),
  wakes = 0 * COALESCE(RELEASE_LOCK({lock}), 0)
WHERE name = {name} AND owner = {owner} AND (expires > {now} OR expires < 0)
