-- Writes fields of a hash, unless its field "fence" is above the token.
--
-- KEYS[1]: the hash. ARGV[1]: the token. ARGV[2], ...: fields and values, in turn.
-- Returns OK, or an error: it begins with STALE if the token is too low, else with ERR, and nothing
-- was written. A result would be overlooked.
--
-- Tokens are compared as text, the shorter being the lower: Lua has no whole numbers
-- above 2^53, and a token base may lead there. So a text that is no number, or has leading
-- zeros, must not become a fence: it would refuse every token that is shorter.
local function whole(s)
	return #s < 19 and s:find('^[1-9]%d*$') or #s == 19 and s:find('^[1-9]%d*$') and s <= '9223372036854775807'
end
local fence = redis.call('HGET', KEYS[1], 'fence') or '0'
local token = ARGV[1]
if not (token and whole(token)) then
	return redis.error_reply('ERR the token is ' .. (token or 'missing') .. ', allowed is a whole number from 1 to 9223372036854775807')
end
if fence ~= '0' and not whole(fence) then
	return redis.error_reply('ERR the field fence of ' .. KEYS[1] .. ' is ' .. fence .. ', which is no token')
end
for i = 2, #ARGV, 2 do
	if ARGV[i] == 'fence' then
		return redis.error_reply('ERR the field fence holds the token, and cannot be written')
	end
end
if #token < #fence or #token == #fence and token < fence then
	return redis.error_reply('STALE the fence of ' .. KEYS[1] .. ' is ' .. fence .. ', the token ' .. token)
end
redis.call('HSET', KEYS[1], 'fence', token, unpack(ARGV, 2))
return redis.status_reply('OK')
