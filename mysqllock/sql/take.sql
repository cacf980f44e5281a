-- Is acquire.sql for a name that is probably free and has a row: 0 instead of an answer if it is not, or is this
-- claim's own. It is worth a statement of its own because the server spends most of the time on the expressions, a
-- quarter of them here.
UPDATE {table} SET
  token = LAST_INSERT_ID(GREATEST(token + 1, {now})),
  acquired = {now},
  holder = {holder},
  wakes = {via} >= 2,
  waited = IF({via} = 3, {now}, waited),
  owner = {owner},
  expires = {now} + {ttl}
WHERE name = {name} AND {free} AND LOCATE({owner}, undone) = 0
