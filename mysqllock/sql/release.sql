-- Gives the name back if it is held: one row, or none. If anybody has come for it meanwhile, it is kept for them; see
-- free.sql.
UPDATE {table} SET expires = -{now}, waited = IF(waited >= acquired, {now}, waited)
WHERE name = {name} AND owner = {owner} AND expires > {now}
