-- One row per name that was ever locked. It outlives the hold, as the home of the token.
--
-- Names and texts are bytes: no collation or encoding can make two of them equal. A timestamptz is the same instant in
-- every session, whatever its time zone. There is no second index, and room on each page: so an update changes the row
-- in place, in the words of Postgres a heap-only tuple.
CREATE TABLE IF NOT EXISTS {table} (
  name     bytea       NOT NULL PRIMARY KEY, -- of the lock, as UTF-8
  owner    bytea       NOT NULL, -- random, 16 bytes, of the latest acquisition; empty if it was broken
  token    bigint      NOT NULL, -- fencing token of the latest acquisition
  expires  timestamptz NOT NULL, -- end of the lease; if it was given back: when
  acquired timestamptz NOT NULL,
  released boolean     NOT NULL, -- given back, broken or undone: the name is free, whatever the clock says
  waiters  bytea       NOT NULL, -- owners that wait to be told of a release, 16 bytes each, in their order
  woken    bytea       NOT NULL, -- the one that was told last
  holder   bytea       NOT NULL, -- free text, for operators
  undone   bytea       NOT NULL  -- owners whose late requests are refused, 16 bytes each
) WITH (fillfactor = 50)
