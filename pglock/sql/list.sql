SELECT encode(name, 'hex'), token, {acquired}, {remaining}, true, encode(holder, 'hex'), waiters <> ''
FROM {table} WHERE NOT released AND expires > {now} AND name >= $1::bytea AND substring(name from 1 for length($1::bytea)) = $1
ORDER BY name
