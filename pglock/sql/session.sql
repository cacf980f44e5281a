-- What the table is, and what the user may do with it; no name if there is none by this one.
SELECT coalesce(n.nspname, ''), coalesce(c.relname, ''), coalesce(c.relkind = 'r' AND c.relpersistence = 'p', false),
  pg_backend_pid(), current_setting('synchronous_commit'),
  coalesce(has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'UPDATE'), false),
  (SELECT coalesce(string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', '), '') FROM pg_attribute
    WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped)
FROM (VALUES (1)) AS one LEFT JOIN pg_class c ON c.oid = to_regclass($1) LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
