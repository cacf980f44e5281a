-- Nothing if another has the row locked. It keeps no lock itself: the statement is a transaction.
SELECT token FROM {table} WHERE name = {name} FOR UPDATE SKIP LOCKED
