-- Is release.sql on the connection that has the named lock, and releases that while the row is still locked: the next
-- waiter is on its way while this is committed, and waits for the row if it is too early. What RELEASE_LOCK returns is of
-- no interest.
UPDATE {table} SET expires = -{now}, waited = IF(LAST_INSERT_ID(waited >= acquired), {now}, waited),
  wakes = 0 * COALESCE(RELEASE_LOCK({lock}), 0)
WHERE name = {name} AND owner = {owner} AND expires > {now}
