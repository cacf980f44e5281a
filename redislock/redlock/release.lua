-- Removes what the claim has on this server.
--
-- KEYS: entry, tombstone of the owner
-- ARGV: owner, round, token of its grant or 0, for how many ms to refuse a request that may still arrive or 0
-- Returns 1 if it was the holder by that grant, else 0.
--
-- Late or sent twice, it finds nothing of these rounds any more. An entry of a later round is not touched.
local entry = redis.call('GETEX', KEYS[1])
local held = 0
if entry and string.sub(entry, 1, #ARGV[1]) == ARGV[1] then
  local round, token = string.match(entry, '^%x+ (%d+) (%d+)')
  if tonumber(round) <= tonumber(ARGV[2]) then
    redis.call('DEL', KEYS[1])
    if token ~= '0' and token == ARGV[3] then
      held = 1
    end
  end
end
if ARGV[4] ~= '0' then
  local tombstone = tonumber(redis.call('GET', KEYS[2])) or 0
  redis.call('SET', KEYS[2], string.format('%.0f', math.max(tombstone, ARGV[2])), 'PX', ARGV[4])
end
return held
