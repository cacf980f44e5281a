-- Whether a sweep may remove a row. If its name is locked again, the new row's token is the clock's reading when that
-- statement started. It may have started before this one, so the token, too, must be that old; what waited for longer
-- than the shortest idle time gets its token from regrant.sql. A row stays if its token is ahead of the clock: the clock
-- must then have gone back. A row that refuses late requests stays for longer: one that came after it would take the name
-- for nobody. A lease may have ended a minute before the claim was undone; see undo.sql.
ABS(expires) <= {now} - {idle} AND token < {now} - {idle} AND (undone = x'' OR ABS(expires) <= {now} - {max-late} - IF(expires < 0, 0, {reading-age}))
