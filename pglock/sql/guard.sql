-- Proves inside a transaction that the lock is held, and keeps its row from changing until the transaction ends.
SELECT true FROM {table}
WHERE name = $1::bytea AND owner = $2::bytea AND token = $3::bigint AND NOT released AND expires > {now} FOR SHARE
