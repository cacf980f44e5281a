-- What the row says of its name. If a claim has had to wait during this hold, waited is later than acquired. It is the
-- same if the holder has waited itself.
SELECT name, token, acquired, expires - {now}, holder, waited > acquired FROM {table} WHERE name = {name}
