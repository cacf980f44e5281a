-- Makes entries last for at least their TTL from now.
--
-- KEYS: the entries
-- ARGV: for each entry how it must begin ("<owner> <round> <token> ") and the TTL in ms
-- Returns for each entry 1 if it is so, 0 if it is gone or without that token, or another's in phase 1, -1 if it is
-- another's, an error if its key is of another type.
--
-- Late or sent twice, this only prolongs what is still there.
local answers = {}
for i = 1, #KEYS do
  local mark, ttl = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  local entry = redis.pcall('GETEX', KEYS[i])
  if type(entry) == 'table' then
    if not string.find(entry.err, 'WRONGTYPE', 1, true) then
      return entry
    end
    answers[i] = entry
  elseif not entry then
    answers[i] = 0
  elseif string.sub(entry, 1, #mark) == mark then
    if redis.call('PTTL', KEYS[i]) < ttl then -- never shorter
      redis.call('PEXPIRE', KEYS[i], ttl)
    end
    answers[i] = 1
  else
    local owner = string.match(mark, '^%x+')
    answers[i] = (string.sub(entry, 1, #owner) == owner or string.find(entry, '^%x+ %d+ 0 ')) and 0 or -1
  end
end
return answers
