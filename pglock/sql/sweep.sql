-- Removes up to 500 rows after a name that nobody has held for long, passing over locked ones, and returns their names.
-- If such a name is locked again, its token is the clock's reading when that statement started, which may have been
-- before this one: so the token, too, must be that old. A row stays if its token is ahead of the clock. A row that refuses
-- late requests stays for $3 at least: one that came after it would take the name for nobody.
DELETE FROM {table} WHERE name IN (
  SELECT name FROM {table}
  WHERE name > $1::bytea AND expires <= {now} - {us} * $2::bigint AND token < {token} - $2
    AND (undone = '' OR expires <= {now} - {us} * $3::bigint)
  ORDER BY name LIMIT 500 FOR UPDATE SKIP LOCKED)
RETURNING encode(name, 'hex')
