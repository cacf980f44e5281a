-- KEYS: entry, token, waiters
-- Returns the entry or '', how many ms it lasts, the last token or '', how many claims wait.

-- include grant.lua
-- include queue.lua

local waiting, now = 0, micros() / 1000
for _, record in ipairs(redis.call('HVALS', KEYS[3])) do
  local lease, channel = string.match(record, '^(%d+) (%S*)')
  if tonumber(lease) > now and channel ~= TOMBSTONE then
    waiting = waiting + 1
  end
end
return {redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2]) or '', waiting}
