-- Makes entries last for at least their TTL from now.
--
-- KEYS: the entries
-- ARGV: for each entry how it must begin ("<owner> <token> ") and the TTL in ms
-- Returns for each entry how many ms it lasts, 0 if it is not that owner's, or not of that grant, an error if its key
-- is of another type.
--
-- The token is compared as well, so that a lost lock does not come back with a late Try of its owner. Late or sent
-- twice, this only prolongs what is still held. It needs no other key of the name: while a slot is being moved, some
-- keys may be here and some there.
local lasts = {}
for i = 1, #KEYS do
  local mark, ttl = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  -- GETEX without an option reads, but counts as a write. A replica may lag behind, so it must not be the one to say
  -- that a lock is lost.
  local entry = redis.pcall('GETEX', KEYS[i])
  local left = 0
  if type(entry) == 'table' then
    if not string.find(entry.err, 'WRONGTYPE', 1, true) then
      return entry
    end
    left = entry
  elseif entry and string.sub(entry, 1, #mark) == mark then
    left = math.max(redis.call('PTTL', KEYS[i]), ttl) -- never shorter
    -- Also where that changes nothing: WAIT counts the replicas that have the writes of its connection.
    redis.call('PEXPIRE', KEYS[i], left)
  end
  lasts[i] = left
end
return lasts
