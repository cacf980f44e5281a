-- Removes the claim: its entry if it is the holder, its record if it waits. Makes the next waiter the holder.
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
  -- The holder is not in the queue: a waiter leaves it when it is granted the name. A hot name changes hands this way,
  -- so each command counts.
  hand_over(KEYS[1], KEYS[4], KEYS[2], KEYS[3], micros(), ARGV[5], ARGV[4])
  return 1
end

local owner, clock, tombstone = ARGV[1], micros(), tonumber(ARGV[3])
local now = math.floor(clock / 1000)
-- Always a write: a replica may lag behind, so it must not be the one to say that the entry is gone. And the first one:
-- later writes of a script pass a server's look at its memory.
redis.call('LREM', KEYS[2], 0, owner)
if tombstone == 0 then
  redis.call('HDEL', KEYS[3], owner)
else
  set_record(KEYS[3], owner, now + tombstone, TOMBSTONE, '')
  -- Removes the tombstones that have ended, but only after as many new ones as were left the last time, or when all of
  -- these have ended. Otherwise a thousand claims given up while the server is slow would cost it a million steps.
  local ends, _, countdown = record_of(KEYS[3], COUNTDOWN)
  countdown = tonumber(countdown) or 0
  if ends and ends <= now then
    countdown = 0
  end
  if countdown <= 0 then
    local records = redis.call('HGETALL', KEYS[3])
    for i = 1, #records, 2 do
      if tonumber(string.match(records[i + 1], '^%d+')) <= now then
        redis.call('HDEL', KEYS[3], records[i])
      else
        countdown = countdown + 1
      end
    end
  end
  set_record(KEYS[3], COUNTDOWN, now + tombstone, TOMBSTONE, string.format('%.0f', countdown - 1))
  outlast(KEYS[3], tombstone)
end
if entry and string.sub(entry, 1, #owner) == owner then
  entry = false -- hand_over ends it
end
if not entry then
  hand_over(KEYS[1], KEYS[4], KEYS[2], KEYS[3], clock, ARGV[5], ARGV[4])
end
return held
