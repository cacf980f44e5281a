-- Says how long another holds the name, if it still does, and whether a release will tell this claim; and whether the
-- claim was undone by a Break, of which it has not heard. For that it is put on the row's list, at the end if $3 is 1 or
-- 3, or first if $3 is 2: it was told, and came too late. A row that is locked is passed over, for it may be being
-- released. A late request of a claim that was undone is on no list.
--
-- 64 are on the list. Those that died stay until the hold has ended, so during a long one the oldest make room for one
-- that was never on it, by $3 = 3. Where that was alive it finds no room at its next look, and polls.
WITH listed AS (
  UPDATE {table} t SET waiters = CASE $3::int WHEN 2 THEN $2 || held.others ELSE held.others || $2 END FROM (
    SELECT name, substring(waiters from greatest(1, length(waiters) - 1007)) AS others FROM {table}
    WHERE $3::int > 0 AND name = $1::bytea AND owner <> $2::bytea AND NOT released AND expires > {now}
      AND position($2 in waiters || undone) = 0
      AND (length(waiters) < 1024 OR $3::int = 3 AND acquired < {now} - interval '1 minute')
    FOR NO KEY UPDATE SKIP LOCKED) AS held
  WHERE t.name = held.name RETURNING true)
SELECT {remaining}, encode(holder, 'hex'), token, position($2 in waiters) > 0 OR EXISTS (SELECT FROM listed), position($2 in undone) > 0
FROM {table} WHERE name = $1 AND (owner <> $2 AND NOT released AND expires > {now} OR position($2 in undone) > 0)
