-- Ends the hold that was seen, as far as it is on this server.
--
-- KEYS: entry, token
-- ARGV: the token of the hold, how long to remember that in ms, how long to refuse what its owner may still send in ms
-- Returns 1 if the entry had this token, else 0.
--
-- The token names the hold, so that, late or sent twice, it never ends a later one.
local entry = redis.call('GETEX', KEYS[1])
local owner, token
if entry then
  owner, token = string.match(entry, '^(%x+) %d+ (%d+) ')
end
if token ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
-- A lock that was held for long has outlived the memory of its token.
if (tonumber(redis.call('GET', KEYS[2])) or 0) < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
end
-- Or a renewal under way would have the hold repaired here.
redis.call('SET', KEYS[1] .. ':gone:' .. owner, '9007199254740991', 'PX', ARGV[3])
return 1
