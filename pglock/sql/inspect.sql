-- What the row says of its name.
SELECT encode(name, 'hex'), token, {acquired}, {remaining}, NOT released AND expires > {now}, encode(holder, 'hex'), waiters <> ''
FROM {table} WHERE name = $1::bytea
