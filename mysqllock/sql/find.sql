-- Names to sweep, a batch at a time, without locking what is passed over.
SELECT name FROM {table} WHERE name > {name} AND {idle-row} ORDER BY name LIMIT 500
