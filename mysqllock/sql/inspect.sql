SELECT name, token, acquired, expires - {now}, holder FROM {table} WHERE name = {name}
