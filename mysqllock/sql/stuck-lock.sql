-- The connection that has the named lock of a name that nobody has taken since it was released, or broken; 0, or no row, if
-- there is none.
SELECT COALESCE(IS_USED_LOCK({lock}), 0) FROM {table} WHERE name = {name} AND owner = {owner} AND expires <= {now}
