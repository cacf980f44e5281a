-- Is release.sql on the connection that has the bell, and lets go of that while the row is still locked: whoever wakes
-- up is on the way while this is committed, and waits for the row if it is too early. What RELEASE_LOCK returns is of
-- no interest.
UPDATE {table} SET expires = -{now}, waited = IF(waited >= acquired, {now}, waited),
  rings = 0 * COALESCE(RELEASE_LOCK({bell}), 0)
WHERE name = {name} AND owner = {owner} AND expires > {now}
