-- Ends the hold that was seen. Waiters stay in the queue, and the first gets the name.
--
-- KEYS: entry, token, queue, waiters
-- ARGV: the token of the hold, how long to remember that in ms, "publish" or "spublish"
-- Returns 1 if that hold was ended, 0 if there is none with this token.
--
-- The token names the hold, so that, late or sent twice, it never ends a later one.
local entry = redis.call('GETEX', KEYS[1]) -- as a write, see renew.lua
-- An entry that these scripts have not written has no token: the last token stands for it.
if not entry or (string.match(entry, '^%S* (%d+) %S* ') or redis.call('GET', KEYS[2])) ~= ARGV[1] then
  return 0
end

-- include grant.lua
-- include queue.lua

-- A lock that was held for long has outlived the memory of its token.
if (tonumber(redis.call('GET', KEYS[2])) or 0) < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
end
hand_over(KEYS[1], KEYS[2], KEYS[3], KEYS[4], micros(), ARGV[2], ARGV[3])
return 1
