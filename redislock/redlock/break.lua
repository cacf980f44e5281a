-- Ends the hold that was seen, as far as it is on this server.
--
-- KEYS: entry, token, tombstone of the owner
-- ARGV: the token of the hold, how long to remember that in ms, how long to refuse what its owner may still send in ms
-- Returns 1 if the entry had this token, else 0.
--
-- The token names the hold, so that, late or sent twice, it never ends a later one.
redis.call('SET', KEYS[3], '9007199254740991', 'PX', ARGV[3]) -- also without the entry: a repair of it may be on its way
local entry = redis.call('GETEX', KEYS[1])
if not entry or string.match(entry, '^%x+ %d+ (%d+) ') ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
-- A lock that was held for long has outlived the memory of its token.
if (tonumber(redis.call('GET', KEYS[2])) or 0) < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
end
return 1
