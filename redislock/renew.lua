-- Makes entries last for at least their TTL from now.
--
-- KEYS: the entries, and at the end any key of the same slot
-- ARGV: for each entry how it must begin ("<owner> <token> ") and the TTL in ms
-- Returns for each entry how many ms it lasts, 0 if it is not that owner's, or not of that grant.
--
-- The token is compared as well, so that a lost lock does not come back with a late Try of its owner. Late or sent
-- twice, this only prolongs what is still held.
--
-- Always a write: a replica, which may lag behind, must not be the one to say that a lock is lost.
redis.call('HDEL', KEYS[#KEYS], '')
local lasts = {}
for i = 1, #KEYS - 1 do
  local mark, ttl = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  local entry = redis.call('GET', KEYS[i])
  local left = 0
  if entry and string.sub(entry, 1, #mark) == mark then
    left = redis.call('PTTL', KEYS[i])
    if left < ttl then -- never shorter
      redis.call('PEXPIRE', KEYS[i], ttl)
      left = ttl
    end
  end
  lasts[i] = left
end
return lasts
