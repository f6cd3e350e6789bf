#!lua
-- Brings parked requests that are due back to their streams.
--
-- KEYS  1 later, 2 later:data, 3 trouble, 4 requests:high, 5 requests, 6 requests:low
-- ARGV  1 how many at most
-- Returns { brought back, ms until the next one is due or -1 when none waits, parked names without data (dropped) }
-- A request that comes back has a new entry id and keeps its identity: _id (the original name), _attempt (the number of the
-- run that is to come), _first_at (unix ms of the first entry), then all its fields. Any worker may call this at any time.
-- May not: remove a parked request before it stands in its stream; run when Redis is out of memory (no allow-oom: this adds
-- work).

local call = redis.call
local later, data, trouble = KEYS[1], KEYS[2], KEYS[3]
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local brought, broken = 0, 0

local function bring_back(name, parked)
  local class, attempt, first_at, fields = parked[1], parked[2], parked[3], parked[4]
  local id = call('XADD', KEYS[4 + class], '*', '_id', name, '_attempt', attempt, '_first_at', first_at, unpack(fields))
  local known = redis.pcall('HGET', trouble, name) -- a side key: of a wrong type it is skipped
  local lonely = type(known) == 'string' and string.match(known, '^%d+ (%d+)') or '0'
  redis.pcall('HSET', trouble, name, (attempt - 1) .. ' ' .. lonely .. ' ' .. id)
end

for _, name in ipairs(call('ZRANGEBYSCORE', later, '-inf', now, 'LIMIT', 0, ARGV[1])) do
  local packed = call('HGET', data, name)
  if packed then
    bring_back(name, cmsgpack.unpack(packed))
    brought = brought + 1
    call('HDEL', data, name)
  else
    broken = broken + 1
  end
  call('ZREM', later, name)
end

local next_one = call('ZRANGE', later, 0, 0, 'WITHSCORES')
local wait = -1
if next_one[2] then wait = math.max(0, math.ceil(next_one[2] - now)) end
return {brought, wait, broken}
