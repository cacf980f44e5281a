-- Phase 1: takes the key of the name on this server, if it is free.
--
-- KEYS: entry, token, tombstone of the owner
-- ARGV: owner, round, TTL in ms, holder text
-- Returns a token that is higher than all that this server knows of, and its clock in µs; 0 if this request comes too late;
-- how many ms the entry of the other lasts, and that entry.
--
-- Sent twice, it finds its own entry. Arriving after the round was undone or the claim released, it finds the tombstone,
-- or an entry of a later round.
local owner, round = ARGV[1], tonumber(ARGV[2])
local tombstone = redis.call('GET', KEYS[3])
if tombstone and tonumber(tombstone) >= round then
  return 0
end
local entry = redis.call('GETEX', KEYS[1]) -- a write: a replica must not be the one to say that the name is held
if entry and string.sub(entry, 1, #owner) ~= owner then
  return {redis.call('PTTL', KEYS[1]), entry}
end
local t = redis.call('TIME')
local clock = t[1] * 1000000 + t[2]
local at = entry and tonumber(string.match(entry, '^%x+ (%d+)')) or 0
if at > round then
  return 0
end
if at < round then
  -- Not all by format: it ends a text at its first NUL.
  redis.call('SET', KEYS[1], owner .. ' ' .. ARGV[2] .. ' 0 ' .. string.format('%.0f ', clock) .. ARGV[4], 'PX', ARGV[3])
elseif redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then -- the other copy has been here; phase 2 may have been, too
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return {math.max(clock, (tonumber(redis.call('GET', KEYS[2])) or 0) + 1), clock}
