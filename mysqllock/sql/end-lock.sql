-- Ends the connection that has a named lock, and thereby the lock. Every user may end his own connections.
KILL CONNECTION IS_USED_LOCK({lock})
