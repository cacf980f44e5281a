-- Waits for a named lock, for a year at most. The row answers 2 if this connection has it and nobody had it before, 3 if
-- it has it after having waited, 0 if it was not to be had.
SELECT IF(GET_LOCK({lock}, 0), 2, IF(GET_LOCK({lock}, 31536000), 3, 0))
