-- Whether a row is one that a sweep may remove. Should its name be locked again, the new row's token is the clock's
-- reading; so rows whose token is ahead of the clock, which must then have gone back, stay.
ABS(expires) <= {now} - {idle} AND token < {now}
