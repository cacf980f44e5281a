-- micros is the time of this server, and millis the same in ms.
local function micros()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

local function millis()
  return math.floor(micros() / 1000)
end

-- next_token returns a token for a grant, and the time of it, both in digits.
--
-- The token is the clock in microseconds, or one more than the last token if that is higher. The clock makes it rise
-- where the last token has been forgotten. The last token makes it rise where the clock stands still or goes back. The
-- last token is kept until the clock has been past it for memory ms.
local function next_token(last_token, memory, clock)
  local acquired = string.format('%.0f', clock) -- ".." would round it to 14 digits
  local token = acquired
  local last = redis.call('SET', last_token, token, 'PX', memory, 'GET')
  if last and tonumber(last) >= clock then
    local ahead = math.ceil((last + 1 - clock) / 1000)
    token = string.format('%.0f', last + 1)
    redis.call('SET', last_token, token, 'PX', string.format('%.0f', memory + ahead))
  end
  return token, acquired
end

-- set_entry makes owner the holder.
local function set_entry(entry, owner, token, acquired, text, ttl)
  redis.call('SET', entry, owner .. ' ' .. token .. ' ' .. acquired .. ' ' .. text, 'PX', ttl)
end
