-- What a session must be like, and whether named locks work as they are needed: inside an expression, without a wait.
SELECT @@autocommit, COALESCE({schema-text}, ''), COALESCE((SELECT engine FROM information_schema.tables
WHERE table_schema = {schema-text} AND table_name = {table-text}), ''), @@innodb_lock_wait_timeout, VERSION(), {named-locks}
