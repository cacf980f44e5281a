-- Makes the claim the holder if the name is free and nobody comes before it; else puts it into the queue.
--
-- KEYS: entry, token, queue, waiters
-- ARGV: owner, TTL in ms, holder text, how long to remember the token in ms, 1 to queue or 0, own channel or ''
-- Returns the token if the claim holds the name; 0 if the claim was given up; else -1 - n, where n is in how many ms to
-- look again if nothing is heard until then, or 0 if that is not known.
--
-- Sent twice, it finds the entry or the place that it made itself. Arriving late, after the release, it finds ENDED.
local owner = ARGV[1]

-- grant sets the entry "<owner> <token> <acquired> <holder>". The token is the clock in microseconds, which rises also
-- where the last token has been forgotten, or one more than the last one, which rises also where the clock stands
-- still or goes back. The last one is kept until the clock has been past it for as long as it is to be remembered.
local function grant()
  local t = redis.call('TIME')
  local clock = t[1] * 1000000 + t[2]
  local acquired = string.format('%.0f', clock) -- ".." would round it to 14 digits
  local token = acquired
  local last = redis.call('SET', KEYS[2], token, 'PX', ARGV[4], 'GET')
  if last and tonumber(last) >= clock then
    local ahead = math.ceil((last + 1 - clock) / 1000)
    token = string.format('%.0f', last + 1)
    redis.call('SET', KEYS[2], token, 'PX', string.format('%.0f', ARGV[4] + ahead))
  end
  redis.call('SET', KEYS[1], owner .. ' ' .. token .. ' ' .. acquired .. ' ' .. ARGV[3], 'PX', ARGV[2])
  return tonumber(token)
end

-- Who waits has a place in waiters. This decides almost all calls, so it is one look at both.
if redis.call('EXISTS', KEYS[1], KEYS[4]) == 0 then
  return grant()
end

-- include queue.lua

local ttl = tonumber(ARGV[2])
local entry = redis.call('GET', KEYS[1])
if entry and string.sub(entry, 1, #owner) == owner then
  outlast(KEYS[1], ttl)
  return tonumber(string.match(entry, '^%x+ (%d+)'))
end

local now = millis()
local lease, channel = place_of(KEYS[4], owner)
if lease and lease <= now and (channel == ENDED or channel == ABSENT) then
  lease, channel = nil, nil
end
if channel == ENDED then
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
  return grant()
end

local free = blocks -- in ms of the clock; nil is not known
if entry then
  local left = redis.call('PTTL', KEYS[1])
  free = left >= 0 and now + math.max(left, 1) or nil
end
if ARGV[5] == '1' then
  if not lease then
    redis.call('RPUSH', KEYS[3], owner)
  elseif channel == ABSENT then
    redis.call('LPUSH', KEYS[3], owner)
  end
  set_place(KEYS[4], owner, now + ttl, ARGV[6])
  outlast(KEYS[3], ttl)
  outlast(KEYS[4], ttl)
  local before = ahead(KEYS[3], KEYS[4], now, owner)
  if before then
    free = math.min(free or before, before)
  end
else
  -- Changes nothing, but is a write: "held" must come from a server that may grant, not from a replica.
  redis.call('HDEL', KEYS[4], owner)
end
return free and now - free - 1 or -1
