-- Removes a row if it is still idle.
DELETE t FROM {table} AS t FORCE INDEX (PRIMARY) WHERE name = {name} AND {idle-row}
