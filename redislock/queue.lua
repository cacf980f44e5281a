-- What the scripts share: the line of claims that wait for a name. It stands in the place of "-- include queue.lua",
-- after what is decided without it, so that a name nobody waits for does not pay for it.
--
-- queue    list of owners, who is to be served first at its head
-- waiters  hash, owner -> "<lease> <channel> <offer>"; the place counts until the lease, in ms of this server's clock
--
-- channel is where the waiter listens, or one of these marks:
local DEAF = ''    -- it does not listen, or not yet: it comes by itself, and is waited for
local ABSENT = '!' -- it said that it listens, and did not when it was called: it has probably died. It is out of the
                   -- list, so that it stops nobody; if it comes back within its lease it is the first again
local ENDED = 'x'  -- not a waiter: the claim was given up while a request of its was still under way, which is refused
                   -- should it arrive after all
--
-- offer is "<TTL> <number> <holder text>" of a claim that may be made the holder without another request of its own.
-- The number is that of the Try by which it got its lease. It is '' for the marks.

local function place_of(waiters, owner)
  local place = redis.call('HGET', waiters, owner)
  if place then
    local lease, channel, offer = string.match(place, '^(%d+) (%S*) ?(.*)$')
    return tonumber(lease), channel, offer
  end
end

local function set_place(waiters, owner, lease, channel, offer)
  if offer ~= '' then
    offer = ' ' .. offer
  end
  redis.call('HSET', waiters, owner, string.format('%.0f %s%s', lease, channel, offer))
end

-- outlast makes a key last for at least ms from now, and never shortens that.
local function outlast(key, ms)
  if redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, ms)
  end
end

-- front returns the first in the queue that is alive, its lease, its channel and its offer. The dead before it are removed; me is
-- alive whatever its lease says, because it is the one who asks.
local function front(queue, waiters, now, me)
  while true do
    local owner = redis.call('LINDEX', queue, 0)
    if not owner then
      return nil
    end
    local lease, channel, offer = place_of(waiters, owner)
    if lease and (lease > now or owner == me) then
      return owner, lease, channel, offer
    end
    redis.call('LPOP', queue)
    redis.call('HDEL', waiters, owner)
  end
end

-- ahead returns the lease of the living waiter directly before owner, nil if owner is the first. The dead between them
-- are removed. Every waiter looks again when that lease ends; so a dead one, which is called and does not come, stops
-- the others no longer than its lease, whatever their own TTLs are.
local function ahead(queue, waiters, now, owner)
  while true do
    local at = redis.call('LPOS', queue, owner)
    if not at or at == 0 then
      return nil
    end
    local other = redis.call('LINDEX', queue, at - 1)
    local lease = place_of(waiters, other)
    if lease and lease > now then
      return lease
    end
    redis.call('LREM', queue, 1, other)
    redis.call('HDEL', waiters, other)
  end
end

-- listeners returns how many listen to a channel at this server; nil if the user may not ask. What PUBLISH returns counts
-- those as well who see everything, and it reaches some whom it does not count: at replicas, and at the other servers of
-- a cluster.
local function listeners(publish, channel)
  local answer = redis.pcall('PUBSUB', publish == 'spublish' and 'SHARDNUMSUB' or 'NUMSUB', channel)
  return not answer.err and answer[2] or nil
end

-- ring gives the name, which is free, to the first in the queue, and tells it, and it alone: "<owner> <token> <number>
-- <waited>", where waited is how many ms after that Try this is. Who hears that holds the name already, wherever it
-- listens. If not much is left of its place, or it does not listen here, it may be dead, and is just told to come: "<owner>".
-- Returns true if the entry is that of the next holder now.
local function ring(entry, last_token, queue, waiters, clock, memory, publish)
  local now = math.floor(clock / 1000)
  while true do
    local owner, lease, channel, offer = front(queue, waiters, now)
    if not owner or channel == DEAF then
      return false
    end
    local listening = listeners(publish, channel)
    local ttl, number, text = string.match(offer, '^(%d+) (%d+) (.*)$')
    local message, given = owner, false
    if ttl and lease - now >= ttl / 2 and listening and listening > 0 then
      -- These first: a server without memory to spare refuses SET as the first write of a script.
      redis.call('LPOP', queue)
      redis.call('HDEL', waiters, owner)
      local token, acquired = next_token(last_token, memory, clock)
      local waited = math.max(ttl - (lease - now) - 1, 0) -- both times were rounded down
      message = string.format('%s %s %s %.0f', owner, token, number, waited)
      set_entry(entry, owner, token, acquired, text, ttl)
      given = true
    end
    -- pcall: a user who may not publish must be able to release. Its waiters look again by themselves.
    local heard = redis.pcall(publish, channel, message)
    if given or heard ~= 0 and listening ~= 0 then
      return given
    end
    redis.call('LPOP', queue)
    set_place(waiters, owner, lease, ABSENT, '')
  end
end
