-- Takes the name, or says how long it is held, in one round trip: LAST_INSERT_ID(x) hands x to the client in the
-- reply, on every path and whatever clientFoundRows makes of the row count. (As a value it is unsigned: a negative one
-- must not be compared or stored.)
--   > 0  the name is this claim's, with this token
--   < 0  twice the microseconds for which it is still held, or kept for those who wait for its named lock, plus 1 if the
--        claim is to wait for that too, as a negative number
--   = 0  this claim was undone
-- Sent again by the same claim it keeps the token and starts the lease anew, but never shortens it: a late copy may come
-- after an extension. (The lease of a row that is free has ended.)
--
-- {via} says how the claim comes: 3 with the named lock after a wait for it, 2 with the named lock after finding it
-- free, 1 on the way there, 0 without (a TryLock, or the named lock is of no use). The first claim that has to
-- wait in a hold leaves the time in waited; behind a holder that has left it there itself, half a second later at the
-- earliest. So it costs few writes. A claim is sent to the named lock if the holder came with that, or has had the time
-- to take it.
--
-- A new row's token is the clock's reading, so that it rises above that of a row that was swept, or that a failover
-- lost; an old row's rises by at least one, so that it does not depend on the clock.
--
-- Assignments are carried out from left to right, each seeing those before it. They are ordered so that it does not
-- matter (MariaDB can be told otherwise, by SIMULTANEOUS_ASSIGNMENT): what is assigned to waited leaves {takes} as it
-- is, and once owner is set, {takes} stays true because the row is then this claim's own.
INSERT INTO {table} (name, owner, token, expires, acquired, holder, undone, waited, wakes)
VALUES ({name}, {owner}, LAST_INSERT_ID({now}), {now} + {ttl}, {now}, {holder}, x'', IF({via} = 3, {now}, 0), {via} >= 2)
ON DUPLICATE KEY UPDATE
  token = IF({takes},
    LAST_INSERT_ID(IF(owner = {owner}, token, GREATEST(token + 1, {now}))),
    IF(LAST_INSERT_ID(
      IF(LOCATE({owner}, undone) > 0, 0,
        IF(expires > {now}, ({now} - expires) * 2 - (wakes OR acquired < {now} - {lock-taken}),
          ({now} - waited - 1000000) * 2 - 1))), token, token)),
  acquired = IF({takes}, {now}, acquired),
  holder = IF({takes}, {holder}, holder),
  wakes = IF({takes}, {via} >= 2, wakes),
  waited = IF(IF({takes}, {via} = 3,
    {via} > 0 AND expires > {now} AND (waited < acquired OR waited = acquired AND ABS({now} - waited) >= 500000)), {now}, waited),
  owner = IF({takes}, {owner}, owner),
  expires = IF({takes}, GREATEST(expires, {now} + {ttl}), expires)
