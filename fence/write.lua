-- Writes fields of a hash, unless its field "fence" is above the token.
--
-- KEYS[1]: the hash. ARGV[1]: the token. ARGV[2], ...: fields and values, in turn.
-- Returns OK, or an error that begins with STALE: a result would be overlooked.
--
-- Tokens are compared as text, the shorter being the lower: Lua has no whole numbers
-- above 2^53, and a token base may lead there.
local fence = redis.call('HGET', KEYS[1], 'fence') or '0'
local token = ARGV[1]
if #token < #fence or #token == #fence and token < fence then
	return redis.error_reply('STALE the fence of ' .. KEYS[1] .. ' is ' .. fence .. ', the token ' .. token)
end
redis.call('HSET', KEYS[1], 'fence', token, unpack(ARGV, 2))
return redis.status_reply('OK')
