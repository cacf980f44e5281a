-- Names to sweep, a batch at a time, without locking what is passed over. The last name is that of the probe.
SELECT name FROM {table} WHERE name > {name} AND name < x'FF' AND {idle-row} ORDER BY name LIMIT 500
