-- Is acquire.sql for a name that is likely to be free and to have a row: 0 instead of an answer if it is not. It is
-- worth a statement of its own because the server spends most of the time on the expressions, half of it here.
UPDATE {table} SET
  token = LAST_INSERT_ID(IF(owner = {owner}, token, GREATEST(token + 1, {now}))),
  acquired = {now},
  holder = {holder},
  rings = {via} >= 2,
  waited = IF({via} = 3, {now}, waited),
  owner = {owner},
  expires = {now} + {ttl}
WHERE name = {name} AND {takes}
