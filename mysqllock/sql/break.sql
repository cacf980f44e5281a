-- Takes the lock away from whoever holds it: one row, or none.
UPDATE {table} SET owner = REPEAT(x'00', 16), expires = {now} WHERE name = {name} AND expires > {now}
