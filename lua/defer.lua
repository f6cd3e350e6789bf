#!lua flags=allow-oom
-- Takes requests out of the stream until they are due again: a retry after a failure.
--
-- KEYS  1 stream, 2 later, 3 later:data, 4 trouble
-- ARGV  1 consumer, 2 class (0 high, 1 normal, 2 low), then for each entry:
--         entry id, original name, number of the next attempt, delay in ms
-- Returns one number for each entry.
--        1  parked
--        0  late: no longer pending
--       -1  another consumer owns it: what happens next is that one's decision
--       -2  the message is no longer in the stream; it is still pending and wants settle's `gone`
--       -3  more fields than a request may have; nothing was changed
-- The run that failed ended without a crash, so the entry's lonely runs begin anew.
-- An entry that calls itself by a name under which a request is parked already is not that request (a producer wrote the
-- _id): it is parked under the name that its own entry id gives it.
-- May not: overwrite a parked request, take fields from the caller (they are read here, so that what comes back is what
-- was sent), or remove an entry before it is safe in later:data.

local call = redis.call
local stream, later, data, trouble = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local CLASS = {'high:', '', 'low:'}
local FIELDS_MAX = 256 -- strings; promote unpacks them
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- The request's own fields; and when it was first sent, which a promoted entry carries with it.
local function own_fields(fields, name)
  local own, first_at = {}, string.match(name, '(%d+)%-')
  for i = 1, #fields, 2 do
    local field = fields[i]
    if field == '_first_at' then
      first_at = fields[i + 1]
    elseif field ~= '_id' and field ~= '_attempt' then
      own[#own + 1] = field
      own[#own + 1] = fields[i + 1]
    end
  end
  return own, first_at
end

local function park(id, called, attempt, delay)
  local pending = call('XPENDING', stream, 'sluice', id, id, 1)[1]
  if not pending then return 0 end
  if pending[2] ~= ARGV[1] then return -1 end
  local message = call('XRANGE', stream, id, id)[1]
  if not message then return -2 end
  if #message[2] > FIELDS_MAX then return -3 end
  local fields, first_at = own_fields(message[2], called)
  local packed = cmsgpack.pack({ARGV[2], attempt, first_at, fields})
  local there = call('HGET', data, called) -- the same bytes: this very call, which an error had cut short
  local name = there and there ~= packed and CLASS[ARGV[2] + 1] .. id or called
  call('HSET', data, name, packed)
  call('ZADD', later, now + delay, name)
  redis.pcall('HSET', trouble, name, (attempt - 1) .. ' 0 ' .. id)
  call('XDEL', stream, id)
  call('XACK', stream, 'sluice', id)
  return 1
end

local results = {}
for i = 3, #ARGV, 4 do
  results[#results + 1] = park(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
end
return results
