-- Whether a connection has the named lock of a name that is free. No row if the name is not free.
SELECT IS_USED_LOCK({lock}) IS NOT NULL FROM {table} WHERE name = {name} AND expires <= {now}
