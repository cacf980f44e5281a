-- How long the lease lasts that has not been given back; it may have ended.
SELECT expires - {now} FROM {table} WHERE name = {name} AND expires >= 0
