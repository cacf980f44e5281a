-- What the row says of its name.
SELECT name, token, acquired, {remaining}, NOT released AND expires > {now}, holder, waiters <> ''
FROM {table} WHERE name = $1::bytea
