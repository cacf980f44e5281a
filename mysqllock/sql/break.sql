-- Takes the lock away from the holder that has this token: one row, or none. If a claim has come for it meanwhile, it is
-- kept for that, as after a release. A late copy of the request that took it is refused from now on.
UPDATE {table} SET undone = RIGHT(CONCAT(undone, owner), 512), owner = REPEAT(x'00', 16),
  waited = IF(waited >= acquired, {now}, waited), expires = -{now}
WHERE name = {name} AND token = {token} AND expires > {now}
