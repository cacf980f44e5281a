SELECT column_name, data_type, column_type, COALESCE(character_octet_length, 0), column_key FROM information_schema.columns
WHERE table_schema = {schema-text} AND table_name = {table-text} LIMIT 1000
