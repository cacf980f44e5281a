-- Does once what the other scripts do, and leaves nothing.
--
-- KEYS: a key that nothing else uses
-- ARGV: "publish" or "spublish", a channel without listeners
-- Returns the server's time in microseconds, the first command that failed with its error or '', the error of publishing
-- or ''.
local key, failed = KEYS[1], ''

local function run(...)
  local answer = redis.pcall(...)
  if type(answer) == 'table' and answer.err and failed == '' then
    failed = select(1, ...) .. ': ' .. answer.err
  end
  return answer
end

-- A write first: then a server without memory to spare allows what follows.
local deleted = run('DEL', key)
if type(deleted) == 'table' and string.find(deleted.err, 'READONLY', 1, true) then
  return deleted -- as the client knows it
end
local time = run('TIME')
run('EXISTS', key)
run('SET', key, 'x', 'PX', 1000, 'GET')
run('GET', key)
run('GETEX', key)
run('PTTL', key)
run('PEXPIRE', key, 1000)
run('DEL', key)
run('RPUSH', key, 'x')
run('LPUSH', key, 'y')
run('LINDEX', key, 0)
run('LPOS', key, 'x')
run('LREM', key, 0, 'x')
run('LPOP', key)
run('HSET', key, 'x', 'y')
run('HGET', key, 'x')
run('HVALS', key)
run('HGETALL', key)
run('HDEL', key, 'x')
local published = redis.pcall(ARGV[1], ARGV[2], '')
return {time[1] and time[1] * 1000000 + time[2] or 0, failed, type(published) == 'table' and published.err or ''}
