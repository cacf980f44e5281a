-- Proves inside a transaction that the lock is held, and keeps its row from changing until the transaction ends. A late
-- request of the claim that holds may raise the token, but the time of the acquisition stays until another has the name.
SELECT true FROM {table}
WHERE name = $1::bytea AND owner = $2::bytea AND {acquired} = $3::bigint AND NOT released AND expires > {now} FOR SHARE
