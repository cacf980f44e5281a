-- Removes the claim: its entry if it is the holder, its place if it is in the queue. Gives the name to who comes next.
--
-- KEYS: entry, queue, waiters, token
-- ARGV: owner, how its entry begins if it has won, for how many ms to refuse a Try that may still be under way or 0,
-- "publish" or "spublish", how long to remember the token in ms
-- Returns 1 if it was the holder by the grant that it knows of, else 0.
--
-- Late or sent twice, it finds nothing of its owner any more; the wake-up is a hint and may come twice.
local entry = redis.call('GET', KEYS[1])
local held = entry and string.sub(entry, 1, #ARGV[2]) == ARGV[2] and 1 or 0
local clear = held == 1 and ARGV[3] == '0'
if clear and redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  return 1
end

-- include grant.lua
-- include queue.lua

if clear then
  -- It is not in the list: who gets the name leaves that. And who gets it next overwrites the entry. A hot name
  -- changes hands this way, so each command counts.
  if not ring(KEYS[1], KEYS[4], KEYS[2], KEYS[3], micros(), ARGV[5], ARGV[4]) then
    redis.call('DEL', KEYS[1])
  end
  return 1
end

local owner, clock, grave = ARGV[1], micros(), tonumber(ARGV[3])
local now = math.floor(clock / 1000)
-- Always a write: a replica, which may lag behind, must not be the one to say that the entry is gone.
if redis.call('HDEL', KEYS[3], owner) == 1 then
  redis.call('LREM', KEYS[2], 0, owner)
end
if entry and string.sub(entry, 1, #owner) == owner then
  redis.call('DEL', KEYS[1])
  entry = false
end
if grave > 0 then
  local places = redis.call('HGETALL', KEYS[3])
  for i = 1, #places, 2 do
    if tonumber(string.match(places[i + 1], '^%d+')) <= now then
      redis.call('HDEL', KEYS[3], places[i])
    end
  end
  set_place(KEYS[3], owner, now + grave, ENDED, '')
  outlast(KEYS[3], grave)
end
if not entry then
  ring(KEYS[1], KEYS[4], KEYS[2], KEYS[3], clock, ARGV[5], ARGV[4])
end
return held
