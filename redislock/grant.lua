-- grant makes owner the holder, and returns the token, in digits. clock is the time of this server in microseconds.
--
-- The token is the clock, or one more than the last token if that is higher. The clock makes it rise where the last token
-- has been forgotten. The last token makes it rise where the clock stands still or goes back. It is kept until the clock
-- has been past it for memory ms.
--
-- This decides almost all calls, so each command and each function counts.
local function grant(entry, last_token, memory, clock, owner, text, ttl)
  local acquired = string.format('%.0f', clock) -- ".." would round it to 14 digits
  local token = acquired
  local last = redis.call('SET', last_token, token, 'PX', memory, 'GET')
  if last and tonumber(last) >= clock then
    local ahead = math.ceil((last + 1 - clock) / 1000)
    token = string.format('%.0f', last + 1)
    redis.call('SET', last_token, token, 'PX', string.format('%.0f', memory + ahead))
  end
  redis.call('SET', entry, owner .. ' ' .. token .. ' ' .. acquired .. ' ' .. text, 'PX', ttl)
  return token
end
