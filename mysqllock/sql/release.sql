-- Gives the name back if it is held: one row, or none. If a claim has come for it meanwhile, it is kept for that (see
-- free.sql). A copy that a proxy sends, because a connection broke, has the same answer while nobody has taken the name: it
-- moves the end of the lease by next to nothing, or no row would change.
UPDATE {table} SET waited = IF(waited >= acquired AND expires > 0, {now}, waited),
  expires = IF(expires < 0, expires - 1, -{now})
WHERE name = {name} AND owner = {owner} AND (expires > {now} OR expires < 0)
