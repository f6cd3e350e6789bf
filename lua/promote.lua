#!lua flags=allow-oom
-- Returns parked requests that are due to their streams.
--
-- KEYS  1 later, 2 later:data, 3 trouble, 4 requests:high, 5 requests, 6 requests:low
-- ARGV  1 how many at most (it also stops once they have 1 MiB)
-- Returns { brought back, ms until the next one is due or -1 when none waits, parked names without readable fields }
-- A request that comes back has a new entry id and keeps its identity: _id (the original name), _attempt (the number of its
-- next run), _first_at (unix ms of the first entry), then all its fields. Any worker may call this at any time.
-- A name whose fields are missing or unreadable comes back without them and with _lost 1, so that it is answered (internal);
-- anything that is not a name is dropped. If a stream has a wrong type, has used up its ids, or is ahead of the clock
-- (lua/mend), requests of its class wait another second; those of other classes do not.
-- May not: remove a parked request before it is in its stream; return one that it may not remove (it would come back again and
-- again). It runs when Redis is full: a request takes as much memory in its stream as it took here.

-- include lib/call.lua

local later, data, trouble = KEYS[1], KEYS[2], KEYS[3]
local STREAM = {['high:'] = KEYS[4], [''] = KEYS[5], ['low:'] = KEYS[6]}
local FIELDS_MAX, BYTES_MAX, PASSED_MAX, RETRY_MS = 256, 1048576, 1000, 1000
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local brought, broken, bytes, passed, unusable = 0, 0, 0, 0, {}

-- include lib/names.lua
-- include lib/trouble.lua
-- include lib/entries.lua

-- Unpacks what defer has packed; returns nil for anything else.
local function read(packed)
  local ok, parked = pcall(cmsgpack.unpack, packed or '')
  if not ok or type(parked) ~= 'table' or type(parked[4]) ~= 'table' then return nil end
  local fields = parked[4]
  if not tonumber(parked[2]) or not tonumber(parked[3]) or #fields > FIELDS_MAX or #fields % 2 == 1 then return nil end
  for _, text in ipairs(fields) do
    if type(text) ~= 'string' then return nil end
  end
  return parked
end

-- Returns false when the stream takes no more. If the new id shows that the stream is ahead, it gets no second request:
-- lua/mend moves this one again.
local function bring_back(prefix, stream, name, first_ms, parked)
  local attempt, first_at, fields = 1, first_ms, {'_lost', '1'}
  if parked then attempt, first_at, fields = parked[2], parked[3], parked[4] end
  local id = try('XADD', stream, '*', '_id', name, '_attempt', attempt, '_first_at', first_at, unpack(fields))
  if type(id) == 'table' then
    if not string.find(id.err, '^ERR ') then error(id) end -- a stream whose ids are used up has no other code
    return false
  end
  unusable[prefix] = tonumber(string.match(id, '^%d+')) > now + AHEAD_MS
  local known = known_of(name)
  if known ~= nil then
    local record = string.match(known or '', '^%d+ %d+ %S+(.*)$') or ''
    local alone = string.match(known or '', '^%d+ (%d+)') or '0'
    call('HSET', trouble, name, (attempt - 1) .. ' ' .. alone .. ' ' .. id .. record)
  end
  return true
end

need('HGET', trouble, 'x')
need('HSET', trouble, 'x', 'x')
need('HDEL', data, 'x')
need('ZADD', later, '1', 'x')
need('ZREM', later, 'x')
for prefix, stream in pairs(STREAM) do
  if not unless_wrong(try('XLEN', stream)) then unusable[prefix] = true end
end

-- Called for a class only when one of its requests is due.
local function is_usable(prefix)
  if unusable[prefix] == nil and STREAM[prefix] then unusable[prefix] = is_ahead(STREAM[prefix], now + AHEAD_MS) end
  return not unusable[prefix]
end

local function pass_by(name)
  call('ZADD', later, now + RETRY_MS, name)
  passed = passed + 1
  return true
end

-- Returns false when the call has done enough.
local function promote(name)
  local prefix, first_ms = string.match(name, '^(%l*:?)(%d+)%-%d+$')
  if not is_usable(prefix) then return pass_by(name) end
  local packed = call('HGET', data, name)
  if bytes >= BYTES_MAX then return false end
  bytes = bytes + #(packed or '')
  local stream, parked = STREAM[prefix], read(packed)
  if not parked then broken = broken + 1 end
  if stream then
    if not bring_back(prefix, stream, name, first_ms, parked) then
      unusable[prefix] = true
      return pass_by(name)
    end
    brought = brought + 1
  end
  call('HDEL', data, name)
  call('ZREM', later, name)
  return true
end

local function promote_all(most)
  while brought < most and passed < PASSED_MAX do
    local due = call('ZRANGEBYSCORE', later, '-inf', now, 'LIMIT', 0, most - brought)
    if #due == 0 then return end
    for _, name in ipairs(due) do
      if not promote(name) then return end
    end
  end
end

promote_all(tonumber(ARGV[1]))
local next_one = call('ZRANGE', later, 0, 0, 'WITHSCORES')
local wait = next_one[2] and math.max(0, math.ceil(next_one[2] - now)) or -1
return {brought, wait, broken}
