-- KEYS: entry and token of each name
-- Returns three for each name: the entry or '' (an error if its key is of another type), how many ms it lasts, the last
-- token or ''.
local answers = {}
for i = 1, #KEYS, 2 do
  answers[#answers + 1] = redis.pcall('GET', KEYS[i]) or ''
  answers[#answers + 1] = redis.call('PTTL', KEYS[i])
  answers[#answers + 1] = redis.call('GET', KEYS[i + 1]) or ''
end
return answers
