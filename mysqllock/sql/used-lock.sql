-- The connection that has a named lock; 0 if none has.
SELECT COALESCE(IS_USED_LOCK({lock}), 0)
