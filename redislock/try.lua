-- Makes the claim the holder if the name is free and no other comes first; else puts it into the queue.
--
-- KEYS: entry, token, queue, waiters
-- ARGV: owner, TTL in ms, holder text, how long to remember the token in ms, 1 to queue or 0, own channel or '',
-- number of this Try, "publish" or "spublish" if the channel is to be tried or ''
-- Returns the token if the claim holds the name; 0 if the claim was released; else in how many ms to look again if nothing
-- is heard until then, or 0 if that is not known, and the entry or ''.
--
-- Sent twice, it finds the entry or the record that it made itself. Arriving late, after the release, it finds the
-- TOMBSTONE.
local owner = ARGV[1]

-- include grant.lua

-- Every waiter has a record in waiters. This decides almost all calls, so it is one look at both.
if redis.call('EXISTS', KEYS[1], KEYS[4]) == 0 then
  local t = redis.call('TIME')
  return tonumber(grant(KEYS[1], KEYS[2], ARGV[4], t[1] * 1000000 + t[2], owner, ARGV[3], ARGV[2]))
end

-- include queue.lua

local ttl = tonumber(ARGV[2])
local entry = redis.call('GET', KEYS[1])
-- The claim holds the name already: by an earlier copy of this request, an earlier Try, or a release.
if entry and string.sub(entry, 1, #owner) == owner then
  outlast(KEYS[1], ttl)
  return tonumber(string.match(entry, '^%x+ (%d+)'))
end

local clock = micros()
local now = math.floor(clock / 1000)
local lease, channel, offer = record_of(KEYS[4], owner)
if lease and lease <= now and (channel == TOMBSTONE or channel == ABSENT) then
  lease, channel = nil, nil
end
-- Before any grant: a late request must not acquire a name that its claim will not release any more.
if channel == TOMBSTONE then
  return 0
end

local first, blocks = front(KEYS[3], KEYS[4], now, owner)
if channel == ABSENT then
  first = owner
end
if not entry and (not first or first == owner) then
  if lease then
    redis.call('HDEL', KEYS[4], owner)
    redis.call('LREM', KEYS[3], 1, owner)
  end
  return tonumber(grant(KEYS[1], KEYS[2], ARGV[4], clock, owner, ARGV[3], ARGV[2]))
end

local free = blocks -- in ms of the clock; nil is not known
if entry then
  local left = redis.call('PTTL', KEYS[1])
  free = left >= 0 and now + math.max(left, 1) or nil
end
if ARGV[5] == '1' then
  local keep = math.min(ttl, ARGV[6] == SILENT and SILENT_LEASE or LEASE)
  -- A late copy of an earlier Try does not take back what a later one has got.
  if not lease or tonumber(string.match(offer, '^%d+ (%d+) ') or 0) <= tonumber(ARGV[7]) then
    set_record(KEYS[4], owner, now + keep, ARGV[6], ARGV[2] .. ' ' .. ARGV[7] .. ' ' .. ARGV[3])
  end
  -- The keys of the queue end by themselves after the last lease, so that dead waiters leave nothing.
  outlast(KEYS[4], keep)
  -- The record does not tell whether it is in the list: an earlier Try may have failed between the two.
  if not redis.call('LPOS', KEYS[3], owner) then
    if channel == ABSENT then
      redis.call('LPUSH', KEYS[3], owner)
    else
      redis.call('RPUSH', KEYS[3], owner)
    end
  end
  outlast(KEYS[3], keep)
  if ARGV[8] ~= '' then
    redis.pcall(ARGV[8], ARGV[6], '') -- tells the Locker that its scripts may
  end
  local before = ahead(KEYS[3], KEYS[4], now, owner)
  if before then
    free = math.min(free or before, before)
  end
else
  -- Changes nothing, but is a write: "held" must come from a server that may grant, not from a replica.
  redis.call('HDEL', KEYS[4], owner)
end
return {free and free - now or 0, entry or ''}
