-- Releases a named lock: the claim that has waited longest for it wakes up.
DO RELEASE_LOCK({lock})
