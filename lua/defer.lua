#!lua flags=allow-oom
-- Takes requests out of the stream until they are due (again): a delay, or a retry after a failure.
--
-- KEYS  1 stream, 2 later, 3 later:data, 4 trouble, 5 meta
-- ARGV  1 consumer, 2 class (0 high, 1 normal, 2 low), then for each entry:
--         entry id, original name, claims (1: the name comes from `_id`), number of the next attempt,
--         delay in ms from now, unix ms before which it is not due (0: none); the later one counts
-- Returns one number for each entry.
--        1  parked
--        0  late: no longer pending
--       -1  another consumer owns it: what happens next is that one's decision. A lonely run of the caller is taken off
--           the record: it crashed nobody
--       -2  the message is no longer in the stream; it is still pending and wants settle's `gone`
--       -3  the name is not this entry's (a producer wrote the `_id`); nothing was changed
--       -7  `later` is full (meta.cap_later), and it asks for a delay at its submission; nothing was changed. What came back
--           from `later`, and retries, were accepted
--       -6  more fields than a request may have; nothing was changed, it wants an error reply
-- The run that failed ended without a crash, so the entry's lonely runs begin anew.
-- May not: park a request in the place of another, take fields from the caller (they are read here, so that what comes
-- back is what was sent), remove an entry before it is safe in later and later:data, or park one that it may not remove.

local call = redis.call
local stream, later, data, trouble, meta = unpack(KEYS)
local consumer, class = ARGV[1], ARGV[2]
local FIELDS_MAX = 256 -- strings; promote unpacks them
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- include lib/names.lua
-- include lib/trouble.lua

local PREFIX = prefix_of(stream)

-- The request's own fields; and when it was first sent, which a promoted entry carries with it.
local function own_fields(fields, name, claims)
  local own, first_at = {}, string.match(name, '(%d+)%-')
  for i = 1, #fields, 2 do
    local field = fields[i]
    if field == '_first_at' then
      first_at = claims == '1' and fields[i + 1] or first_at
    elseif field ~= '_id' and field ~= '_attempt' then
      own[#own + 1] = field
      own[#own + 1] = fields[i + 1]
    end
  end
  return own, first_at
end

-- Whether a name from `_id` is this entry's. Where `trouble` cannot be read the name is believed, but not to the harm of a
-- request that is parked under it.
local function carries(id, name, packed)
  local known = known_of(name)
  if known == nil then
    local parked = call('HGET', data, name)
    return not parked or parked == packed -- the same bytes: this very call, which an error had cut short
  end
  return is_carrier(id, known, name, PREFIX)
end

-- How many requests may be in `later`.
local function cap_of_later()
  local cap = redis.pcall('HGET', meta, 'cap_later')
  if type(cap) == 'table' and not string.find(cap.err, '^WRONGTYPE') then error(cap) end
  cap = type(cap) == 'string' and tonumber(cap) or 0
  return cap > 0 and cap or math.huge
end

local CAP = cap_of_later()

local function park(id, name, claims, attempt, delay, due_at)
  local pending = call('XPENDING', stream, 'sluice', id, id, 1)[1]
  if not pending then
    uncharge(id, name, consumer)
    return 0
  end
  local message = call('XRANGE', stream, id, id)[1]
  if not message then return -2 end
  if #message[2] > FIELDS_MAX then return -6 end
  local fields, first_at = own_fields(message[2], name, claims)
  local packed = cmsgpack.pack({class, attempt, first_at, fields})
  if claims == '1' and not carries(id, name, packed) then return -3 end
  if pending[2] ~= consumer then
    uncharge(id, name, consumer)
    return -1
  end
  if claims == '0' and attempt == '1' and call('ZCARD', later) >= CAP and not call('HGET', data, name) then return -7 end
  call('HSET', data, name, packed)
  call('ZADD', later, math.max(now + delay, due_at), name)
  if known_of(name) ~= nil then call('HSET', trouble, name, (attempt - 1) .. ' 0 ' .. id) end
  call('XDEL', stream, id)
  call('XACK', stream, 'sluice', id)
  return 1
end

-- A missing right or a key of a wrong type stops the call here, before a request stands both in its stream and in later.
local NEEDED = {{'ZADD', later}, {'HGET', trouble}, {'HSET', trouble}, {'XDEL', stream}, {'XACK', stream}}
for _, needed in ipairs(NEEDED) do
  if not redis.acl_check_cmd(needed[1], needed[2], 'x', 'x') then
    return redis.error_reply('NOPERM lua/defer may not ' .. needed[1] .. ' on ' .. needed[2])
  end
end
call('ZCARD', later)
call('HLEN', data)
local results = {}
for i = 3, #ARGV, 6 do
  results[#results + 1] = park(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5])
end
return results
