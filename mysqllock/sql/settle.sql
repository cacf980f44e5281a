-- Readies a connection that a pool of the user's has lent: the next transaction may write, and the clock is the server's. It
-- fails, and changes nothing, in an open transaction: without a scope, the first variable is of the next transaction alone.
-- It also fails without autocommit, as 2 is no value for it. That is not turned on: others may count on it being off.
-- MariaDB has another name for the variable, alone reads the first comment, and does not read the second.
SET /*M!100000 @@tx_read_only *//*!80000 @@transaction_read_only */ = IF(@@autocommit, 0, 2), @@timestamp = DEFAULT
