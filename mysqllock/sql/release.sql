-- Gives the name back if it is held: one row, or none. If a claim has come for it meanwhile, it is kept for that (see
-- free.sql), and LAST_INSERT_ID is 1.
UPDATE {table} SET expires = -{now}, waited = IF(LAST_INSERT_ID(waited >= acquired), {now}, waited)
WHERE name = {name} AND owner = {owner} AND expires > {now}
