SELECT @@autocommit, COALESCE({schema-text}, ''), COALESCE((SELECT engine FROM information_schema.tables
WHERE table_schema = {schema-text} AND table_name = {table-text}), '')
