-- Starts the lease of a holder anew, and raises its token above every one that was given before this statement. It answers
-- with that token, or 0 if the lease has ended. See Try. It names the token that the holder was told: a copy that arrives
-- late, after the holder was told of another, does not raise that.
UPDATE {table} SET
  token = LAST_INSERT_ID(GREATEST(token + 1, {now})),
  expires = GREATEST(expires, {now} + {ttl})
WHERE name = {name} AND owner = {owner} AND token = {seen} AND expires > {now}
