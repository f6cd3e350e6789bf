-- Parking: a request goes from its stream into `later` (when it is due) and `later:data` (what it is). The script has locals
-- `stream`, `later`, `data`, `trouble` and `now`, and the pieces call, names and trouble.

-- The most strings of a request's fields; promote unpacks them.
local FIELDS_MAX = 256

-- Returns the request's own fields; and when it was first sent, which a promoted entry carries with it. A time ahead of the
-- clock is replaced by that of the first look, which is now.
local function own_fields(fields, name, claims)
  local own, first_at = {}, string.match(name, '(%d+)%-')
  if tonumber(first_at) > now + AHEAD_MS then first_at = string.format('%.0f', now) end
  for i = 1, #fields, 2 do
    local field = fields[i]
    if field == '_first_at' then
      first_at = claims and fields[i + 1] or first_at
    elseif field ~= '_id' and field ~= '_attempt' then
      own[#own + 1] = field
      own[#own + 1] = fields[i + 1]
    end
  end
  return own, first_at
end

-- Returns the packed request parked under a name, unless it is this same request, left there by a call that an error
-- cut short. Content that cannot be read belongs to no request.
local function other_parked(name, class, attempt, own)
  local packed = call('HGET', data, name)
  if not packed then return nil end
  local ok, parked = pcall(cmsgpack.unpack, packed)
  if not ok or type(parked) ~= 'table' then return nil end
  return packed ~= cmsgpack.pack({class, attempt, parked[3], own}) and packed or nil
end

-- Returns a name that no request has: no entry gets an id with such a high number in its ms.
local function fresh_name(prefix)
  local number, name = 1000000000000000, nil
  repeat
    number = number + 1
    name = string.format('%s%.0f-%.0f', prefix, now, number)
  until not call('HGET', data, name) and not known_of(name)
  return name
end

-- Returns the name under which an entry is parked; nil if the name that it claims is not its own. An entry's own id is taken if
-- a request that was parked under it is on its way back: then a producer has given out the same id again, and this request gets
-- a fresh name. If `trouble` cannot be read, names are believed, unless another request is parked under them.
local function parking_name(id, name, claims, class, attempt, own)
  local known, prefix = known_of(name), prefix_of(stream)
  local taken = other_parked(name, class, attempt, own)
  if claims then
    if known == nil then return not taken and name or nil end
    return is_carrier(id, known, name, prefix) and name or nil
  end
  if taken or known and not is_carrier(id, known, name, prefix) then return fresh_name(prefix) end
  return name
end

local function put_into_later(name, class, attempt, first_at, own, due)
  call('HSET', data, name, cmsgpack.pack({class, attempt, first_at, own}))
  call('ZADD', later, due, name)
end

local function leave_stream(id)
  call('XDEL', stream, id)
  call('XACK', stream, 'sluice', id)
end

-- A missing right stops the script before a request is both in its stream and in later; so does a key of a wrong type.
local function need_all()
  need('HSET', data, 'x', 'x')
  need('ZADD', later, '1', 'x')
  need('HGET', trouble, 'x')
  need('HSET', trouble, 'x', 'x')
  need('XDEL', stream, '1-0')
  need('XACK', stream, 'sluice', '1-0')
  call('ZCARD', later)
  call('HLEN', data)
end
