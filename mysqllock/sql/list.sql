-- What begins with the prefix, and no row beyond: no name has the byte FF, because they are UTF-8. The limit overrides a
-- session's sql_select_limit.
SELECT name, token, acquired, expires - {now}, holder, waited > acquired FROM {table}
WHERE expires > {now} AND name BETWEEN {name} AND CONCAT({name}, x'FF')
ORDER BY name LIMIT 18446744073709551615
