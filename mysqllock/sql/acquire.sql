-- Takes the name, or says how long it is held, in one round trip: LAST_INSERT_ID(x) hands x to the client in the
-- reply, on every path and whatever clientFoundRows makes of the row count. (As a value it is unsigned: a negative one
-- must not be compared or stored.)
--   > 0  the name is this claim's, with this token
--   < 0  twice the microseconds for which it is still held, plus 1 if the holder will ring, as a negative number;
--        -1 if nobody holds it, but those at the doorbell come first
--   = 0  this claim was undone
-- Sent again by the same claim it keeps the token and starts the lease anew.
--
-- {via} says how the claim comes: 2 with the bell, 1 on the way there, 0 past it (a TryLock, or the bell is of no use).
-- One on the way that finds the name held marks it as contended, which wears off with the releases; bell.go says more.
--
-- A new row's token is the clock's reading, so that it rises above that of a row that was swept, or that a fail-over
-- lost; an old row's rises by at least one, so that it does not depend on the clock.
--
-- Assignments are carried out from left to right, each seeing those before it. They are ordered so that it does not
-- matter (MariaDB can be told otherwise, by SIMULTANEOUS_ASSIGNMENT): what is assigned to bell leaves {takes} as it is,
-- and once owner is set, {takes} stays true because the row is then this claim's own.
INSERT INTO {table} (name, owner, token, expires, acquired, holder, undone, bell)
VALUES ({name}, {owner}, LAST_INSERT_ID({now}), {now} + {ttl}, {now}, {holder}, '', IF({via} = 2, 16, 0))
ON DUPLICATE KEY UPDATE
  token = IF({takes},
    LAST_INSERT_ID(IF(owner = {owner}, token, GREATEST(token + 1, {now}))),
    IF(LAST_INSERT_ID(
      IF(LOCATE({owner}, undone) > 0, 0, IF(expires > {now}, ({now} - expires) * 2 - (bell >= 16), -1))), token, token)),
  acquired = IF({takes}, {now}, acquired),
  holder = IF({takes}, {holder}, holder),
  bell = IF({takes}, MOD(bell, 16) + IF({via} = 2, 16, 0),
    bell + IF({via} = 1 AND expires > {now} AND MOD(bell, 16) < 4, 8 - MOD(bell, 16), 0)),
  owner = IF({takes}, {owner}, owner),
  expires = IF({takes}, {now} + {ttl}, expires)
