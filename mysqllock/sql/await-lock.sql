-- Waits for a named lock, for a year at most, and on MySQL for 25 days. The row answers 2 if this connection has it and nobody had it before, 3 if
-- it has it after having waited, 0 if it was not to be had. Where the server ends statements that take long, it is not to end
-- this: a claim that comes back has lost its place. MariaDB alone reads the first line, and MySQL the hint: 0 would not do there.
/*M!100100 SET STATEMENT max_statement_time = 0 FOR */
SELECT /*+ MAX_EXECUTION_TIME(2147483647) */ IF(GET_LOCK({lock}, 0), 2, IF(GET_LOCK({lock}, 31536000), 3, 0))
