-- The limit overrides a session's sql_select_limit.
SELECT name, token, acquired, expires - {now}, holder, waited > acquired FROM {table}
WHERE expires > {now} AND name >= {name} AND LEFT(name, {length}) = {name}
ORDER BY name LIMIT 18446744073709551615
