-- Phase 2: writes the token of the grant, while the claim still owns the key.
--
-- KEYS: entry, token, tombstone of the owner
-- ARGV: owner, round, token, time of the grant in µs, TTL in ms, holder text, how long to remember the token in ms, 1 to
-- repair or 0
-- Returns 1 if the entry is the claim's and has the token, else 0.
--
-- The token must be higher than all that this server has seen. So each grant has a token above those of the servers of a
-- majority. Every earlier grant has left its token on one of them.
--
-- A repair puts the entry of a held lock back to a server that has lost it. It is refused after the release, by the
-- tombstone, and after a later grant, by its token. Another's entry in phase 1 is no obstacle: phase 2 then finds it gone.
-- Waiters try all the time, and would keep a server that has come back from the holder.
--
-- What is no repair makes no entry: arriving late, it finds one of another, of a later round, or none. Sent twice, it finds
-- its token.
local owner, round, new = ARGV[1], ARGV[2], tonumber(ARGV[3])
local entry = redis.call('GETEX', KEYS[1]) -- a write: a replica must not be the one to say that the key is gone
local last = tonumber(redis.call('GET', KEYS[2])) or 0
local mark = owner .. ' ' .. round .. ' '
local mine = entry and string.sub(entry, 1, #mark) == mark
if mine and string.match(entry, '^%d+', #mark + 1) == ARGV[3] then
  return 1 -- and nothing is changed: the lease may be longer by now
end
if ARGV[8] == '1' then
  local tombstone = redis.call('GET', KEYS[3])
  local other = entry and string.sub(entry, 1, #owner) ~= owner and not string.find(entry, '^%x+ %d+ 0 ')
  if other or last > new or tombstone and tonumber(tombstone) >= tonumber(round) then
    return 0
  end
elseif not mine or last >= new then
  return 0
end
local t = redis.call('TIME')
-- Until the clock has been past it for that long: then the clock alone makes the next token higher.
local ahead = math.max(0, math.ceil((new - t[1] * 1000000 - t[2]) / 1000))
redis.call('SET', KEYS[2], ARGV[3], 'PX', string.format('%.0f', ARGV[7] + ahead))
redis.call('SET', KEYS[1], owner .. ' ' .. round .. ' ' .. ARGV[3] .. ' ' .. ARGV[4] .. ' ' .. ARGV[6], 'PX', ARGV[5])
return 1
