-- The hint keeps it from locking more than the rows it names.
DELETE t FROM {table} AS t FORCE INDEX (PRIMARY) WHERE name IN ({name}) AND {idle-row}
