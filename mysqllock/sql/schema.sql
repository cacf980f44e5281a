-- One row per name that was ever locked. It outlives the hold, as the home of the token, and it is only ever updated
-- or upserted by its primary key: an INSERT and a DELETE per hold deadlock each other.
--
-- Names and texts are bytes: no collation, padding or connection charset can make two of them equal.
-- Times are BIGINT, microseconds since 1970 in UTC: they mean the same in every session, where a DATETIME is shifted
-- by time_zone, parseTime and loc, and a TIMESTAMP does not exist for one hour a year.
-- There is no second index: it would be written on every acquire, renewal and release.
CREATE TABLE IF NOT EXISTS {table} (
  name     VARBINARY(512) NOT NULL COMMENT 'of the lock, as UTF-8',
  owner    BINARY(16)     NOT NULL COMMENT 'random, of the latest acquisition; zeros if it was broken',
  token    BIGINT         NOT NULL COMMENT 'fencing token of the latest acquisition',
  expires  BIGINT         NOT NULL COMMENT 'end of the lease, us since 1970 UTC; negative: when it was given back',
  acquired BIGINT         NOT NULL COMMENT 'us since 1970 UTC',
  holder   VARBINARY(255) NOT NULL COMMENT 'free text, for operators',
  undone   VARBINARY(512) NOT NULL COMMENT 'owners whose late requests are refused, 16 bytes each',
  waited   BIGINT         NOT NULL COMMENT 'when a claim last had to wait for the name, us since 1970 UTC',
  wakes    TINYINT        NOT NULL COMMENT 'whether the holder came with the named lock of the name',
  PRIMARY KEY (name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='distlock: one row per lock name'
