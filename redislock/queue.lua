-- The queue of a name, shared by the scripts. It stands where they say "-- include queue.lua", after what is decided
-- without it, so that a name without waiters does not pay for it.
--
-- queue    list of owners, the first at its head
-- waiters  hash, owner -> record "<lease> <channel> <offer>"; the waiter counts until its lease, in ms of this server's
--          clock
--
-- channel is where the waiter listens, or one of these marks:
local SILENT = ''    -- it does not listen, or not yet: it looks by itself, and the others wait for it
local ABSENT = '!'   -- it said that it listens, and did not when a release woke it: it has probably died. It is out of the
                     -- list, so that it stops no other; if it comes back within its lease it is the first again
local TOMBSTONE = 'x' -- not a waiter: the claim was released while a request of it might still arrive, which is refused
local COUNTDOWN = '' -- the owner of no claim: its record has, instead of an offer, after how many more tombstones those
                     -- that have ended are removed
--
-- The lease is short, whatever TTL is asked for, because a waiter comes again more often, and a dead one stops the
-- others for that long. It is LEASE ms for a waiter that listens and comes every third of that. It is SILENT_LEASE ms
-- for one that does not listen yet.
local LEASE, SILENT_LEASE = 30000, 5000
--
-- offer is "<TTL> <number> <holder text>" of a claim that may be made the holder without another request of its own.
-- number is the number of the Try by which it got its lease. offer is '' for the marks.

-- micros is the time of this server.
local function micros()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

local function record_of(waiters, owner)
  local text = redis.call('HGET', waiters, owner)
  if text then
    local lease, channel, offer = string.match(text, '^(%d+) (%S*) ?(.*)$')
    return tonumber(lease), channel, offer
  end
end

local function record(lease, channel, offer)
  if offer ~= '' then
    offer = ' ' .. offer
  end
  -- Not by format alone: it ends a text at its first NUL.
  return string.format('%.0f ', lease) .. channel .. offer
end

local function set_record(waiters, owner, ...)
  redis.call('HSET', waiters, owner, record(...))
end

-- outlast makes a key last for at least ms from now, and never shortens that.
local function outlast(key, ms)
  if redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, ms)
  end
end

-- front returns the first living waiter in the queue, its lease, its channel and its offer. The dead before it are
-- removed. me has sent this request, so it is alive whatever its lease says.
local function front(queue, waiters, now, me)
  while true do
    local owner = redis.call('LINDEX', queue, 0)
    if not owner then
      return nil
    end
    local lease, channel, offer = record_of(waiters, owner)
    if lease and (lease > now or owner == me) then
      return owner, lease, channel, offer
    end
    redis.call('LPOP', queue)
    redis.call('HDEL', waiters, owner)
  end
end

-- ahead returns the lease of the living waiter directly before owner, nil if owner is the first. The dead between them
-- are removed. Every waiter looks again when that lease ends. So a dead waiter stops the others no longer than its
-- lease, though it is woken and does not come.
local function ahead(queue, waiters, now, owner)
  while true do
    local at = redis.call('LPOS', queue, owner)
    if not at or at == 0 then
      return nil
    end
    local other = redis.call('LINDEX', queue, at - 1)
    local lease = record_of(waiters, other)
    if lease and lease > now then
      return lease
    end
    redis.call('LREM', queue, 1, other)
    redis.call('HDEL', waiters, other)
  end
end

-- listeners returns how many listen to a channel at this server; nil if the user may not ask. The answer of PUBLISH
-- will not do: it counts the subscribers of patterns, such as monitors. The message also reaches subscribers that it
-- does not count, at replicas and at the other servers of a cluster.
local function listeners(publish, channel)
  local answer = redis.pcall('PUBSUB', publish == 'spublish' and 'SHARDNUMSUB' or 'NUMSUB', channel)
  return not answer.err and answer[2] or nil
end

-- grant_next makes the first in the queue the holder of a free name. It tells that waiter, and no other: "<owner>
-- <token> <number> <waited>". waited is how many ms have passed since the Try with that number. The waiter holds the
-- name before it hears that. If its lease is half over, or it does not listen here, it may be dead, and is only woken:
-- "<owner>". A waiter comes by itself if it cannot be told.
-- Returns true if the entry is that of the next holder now.
local function grant_next(entry, last_token, queue, waiters, clock, memory, publish)
  local now = math.floor(clock / 1000)
  while true do
    local owner, lease, channel, offer = front(queue, waiters, now)
    if not owner or channel == SILENT then
      return false
    end
    local listening = listeners(publish, channel)
    local ttl, number, text = string.match(offer, '^(%d+) (%d+) (.*)$')
    local keep = ttl and math.min(ttl, LEASE)
    local granted = ttl and lease - now >= keep / 2 and listening and listening > 0
    local message = owner
    if granted then
      -- These first: a server without memory to spare refuses SET as the first write of a script.
      redis.call('LPOP', queue)
      redis.call('HDEL', waiters, owner)
      -- The entry comes before the message, or the message may promise what is not so: while the slot is being moved,
      -- Redis ends a script at a missing key.
      local token = grant(entry, last_token, memory, clock, owner, text, ttl)
      local waited = math.max(keep - (lease - now) - 1, 0) -- both times were rounded down
      message = string.format('%s %s %s %.0f', owner, token, number, waited)
    end
    -- pcall: a user without the right to publish must be able to release.
    local heard = redis.pcall(publish, channel, message)
    if granted and type(heard) == 'number' then
      return true
    end
    if granted then -- and not told: it is the first again
      redis.call('LPUSH', queue, owner)
      set_record(waiters, owner, lease, channel, offer)
      outlast(queue, lease - now)
      outlast(waiters, lease - now)
    end
    if heard ~= 0 and listening ~= 0 then
      return false
    end
    redis.call('LPOP', queue)
    set_record(waiters, owner, lease, ABSENT, '')
  end
end

-- hand_over makes the first in the queue the holder, or leaves the name free. The old entry is overwritten or removed
-- here, not by the caller before: see grant_next.
local function hand_over(entry, ...)
  if not grant_next(entry, ...) then
    redis.call('DEL', entry)
  end
end
