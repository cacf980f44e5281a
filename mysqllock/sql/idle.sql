-- Whether a row is one that a sweep may remove. Should its name be locked again, the new row's token is the clock's
-- reading when that statement started, which may be before this one did; so the token, too, must be that old. Rows whose
-- token is ahead of the clock, which must then have gone back, stay.
ABS(expires) <= {now} - {idle} AND token < {now} - {idle}
