-- Releases a named lock: the claim that has waited longest for it wakes up. 1, or 0 if the connection does not have it.
SELECT COALESCE(RELEASE_LOCK({lock}), 0)
