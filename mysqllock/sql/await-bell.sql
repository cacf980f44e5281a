-- Waits for a bell, for a year at most. The row answers 1 if this connection has it now.
SELECT GET_LOCK({bell}, 31536000)
