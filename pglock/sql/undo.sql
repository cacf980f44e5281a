-- Releases a claim of which a request may still be under way, and says whether it held the name until now, or gave it
-- back before. The owner is put on the row's list, and the row made if need be: whatever comes of the claim after this
-- is refused. The list keeps the latest 32: of claims that failed without an answer, and of locks that were broken.
WITH freed AS (
  INSERT INTO {table} AS t (name, owner, token, expires, acquired, released, waiters, woken, holder, undone)
  SELECT $1::bytea, '', {token}, {now}, {now}, true, '', '', '', $2::bytea FROM {bounded}
  ON CONFLICT (name) DO UPDATE SET
    undone   = CASE WHEN position($2 in t.undone) > 0 THEN t.undone ELSE substring(t.undone || $2 from greatest(1, length(t.undone) - 495)) END,
    woken    = CASE WHEN t.released OR t.owner = $2 OR t.expires <= {now} THEN substring({others} for 16) ELSE '' END,
    waiters  = CASE WHEN t.released OR t.owner = $2 OR t.expires <= {now} THEN substring({others} from 17) ELSE {others} END,
    expires  = CASE WHEN t.released OR t.owner = $2 OR t.expires <= {now} THEN {now} ELSE t.expires END,
    released = t.released OR t.owner = $2 AND t.expires > {now}
  RETURNING t.owner = $2 AND t.released AS done, t.woken)
SELECT done, {tell} FROM freed
