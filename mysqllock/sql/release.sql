-- Gives the name back if it is held: one row, or none. If a claim has come for it meanwhile, it is kept for that; see
-- free.sql.
UPDATE {table} SET expires = -{now}, waited = IF(waited >= acquired, {now}, waited)
WHERE name = {name} AND owner = {owner} AND expires > {now}
