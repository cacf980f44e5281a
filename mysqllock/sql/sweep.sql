-- Removes rows, passing over locked ones, for the reasons of renew.sql.
DELETE t FROM (SELECT name FROM {table} FORCE INDEX (PRIMARY)
  WHERE name IN ({name}) AND {idle-row} LIMIT 100000 FOR UPDATE SKIP LOCKED) AS idle
STRAIGHT_JOIN {table} AS t FORCE INDEX (PRIMARY) ON t.name = idle.name
