-- Proves inside a transaction that the lock is held, and keeps its row from changing until the transaction ends.
SELECT 1 FROM {table} WHERE name = {name} AND owner = {owner} AND token = {token} AND expires > {now}
LOCK IN SHARE MODE
