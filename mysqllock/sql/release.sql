-- Gives the name back if it is held: one row, or none.
UPDATE {table} SET expires = -{now}, bell = GREATEST(MOD(bell, 16) - 1, 0)
WHERE name = {name} AND owner = {owner} AND expires > {now}
