-- Ends the hold that was seen, whoever has it. Waiters keep their places, and the first gets the name.
--
-- KEYS: entry, token, queue, waiters
-- ARGV: the entry, its token, how long to remember that in ms, "publish" or "spublish"
-- Returns 1 if that hold was ended, 0 if it was over.
--
-- It names the hold, so that, late or sent twice, it never ends a later one.
redis.call('HDEL', KEYS[4], '') -- a write, see release.lua
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end

-- include grant.lua
-- include queue.lua

-- A lock that was held for long has outlived the memory of its token.
if (tonumber(redis.call('GET', KEYS[2])) or 0) < tonumber(ARGV[2]) then
  redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
end
redis.call('DEL', KEYS[1])
ring(KEYS[1], KEYS[2], KEYS[3], KEYS[4], micros(), ARGV[3], ARGV[4])
return 1
