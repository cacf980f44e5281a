-- Releases a claim of which a request may still be under way.
--   1  it held the name until now, or gave it back before: a repeated release gets the first answer
--   2  its lease had ended before
--   0  another holds the name, or nobody
--
-- Cancelling a statement closes the socket, and the server carries it out all the same, now or when the row it waits for
-- becomes free. So the owner is put on the row's list, and the row created if need be: whatever comes of this claim after
-- this is refused. The list keeps the latest 32; only claims that failed without an answer, or were broken, are put on it.
-- A lease that ended more than a minute ago ends a minute ago: a sweep looks at that, and is to leave the list; see idle.sql.
-- It does not end now: a renewal that read the clock before, and waits for the row, must not find a lease that it revives.
INSERT INTO {table} (name, owner, token, expires, acquired, holder, undone, waited, wakes)
VALUES ({name}, REPEAT(x'00', 16), {now}, -{now}, 0, x'', {owner}, 0, 0)
ON DUPLICATE KEY UPDATE
  undone = IF(LOCATE({owner}, undone) > 0, undone, RIGHT(CONCAT(undone, {owner}), 512)),
  expires = IF(LAST_INSERT_ID(IF(owner <> {owner}, 0, IF(expires < 0 OR expires > {now}, 1, 2))) = 1 OR expires < 0,
    -{now}, GREATEST(expires, {now} - {reading-age}))
