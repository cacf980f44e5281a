-- Starts the lease of a holder anew, and raises its token above every one that was given before this statement. It answers
-- with that token, or 0 if the lease has ended. See Try.
UPDATE {table} SET
  token = LAST_INSERT_ID(GREATEST(token + 1, {now})),
  expires = GREATEST(expires, {now} + {ttl})
WHERE name = {name} AND owner = {owner} AND expires > {now}
