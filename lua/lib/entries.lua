-- Reading entries of a stream, and parked requests, within bounds. The script has the piece call.

-- A call reads at most LOOKS entries, and stops after LOOK_BYTES; the next call continues. It reads one entry at a time,
-- because the size of the next one is unknown.
local LOOKS, LOOK_BYTES = 64, 1048576

-- Returns the last id that XREADGROUP has delivered; nil if there is no group.
local function read_until(stream)
  for _, group in ipairs(call('XINFO', 'GROUPS', stream)) do
    local facts = {}
    for i = 1, #group, 2 do facts[group[i]] = group[i + 1] end
    if facts.name == 'sluice' then return facts['last-delivered-id'] end
  end
end

-- The largest possible id; a range cannot begin after it.
local LAST_ID = '18446744073709551615-18446744073709551615'

-- Returns the first entry after an id and up to another one; nil if there is none.
local function next_entry(stream, last, to)
  return last ~= LAST_ID and call('XRANGE', stream, '(' .. last, to, 'COUNT', 1)[1] or nil
end

-- Returns the fields of a parked request, from `later:data`. If they cannot be read, the only field has their bytes as its name.
local function parked_fields(data, name)
  local packed = call('HGET', data, name) or ''
  local ok, request = pcall(cmsgpack.unpack, packed)
  return ok and type(request) == 'table' and type(request[4]) == 'table' and request[4] or {packed, ''}
end

-- Returns whether ids of a stream have run ahead of Redis' clock, beyond this unix ms, judged by the last id that the group has
-- read or that was in the stream. Redis then makes ids that continue from there, or none at all. It does not read entries,
-- because they may be large.
local function is_ahead(stream, until_ms)
  local function beyond(id) return tonumber(string.match(id, '^%d+')) > until_ms end
  if call('EXISTS', stream) == 0 then return false end
  local read = read_until(stream)
  if read and beyond(read) then return true end
  if call('XLEN', stream) > 0 then return false end
  -- Only if the stream is empty, because XINFO STREAM also returns the first and the last entry.
  local facts = call('XINFO', 'STREAM', stream)
  for i = 1, #facts, 2 do
    if facts[i] == 'last-generated-id' then return beyond(facts[i + 1]) end
  end
  return false
end

-- Returns the bytes of an entry's fields, and the name of its request: its own, or the one that it was parked under, which
-- the first `_id` has, as for the worker.
local function size_and_name(id, fields, prefix)
  local size, name = 0, nil
  for i = 1, #fields, 2 do
    size = size + #fields[i] + #fields[i + 1]
    if fields[i] == '_id' then name = name or fields[i + 1] end
  end
  return size, name or prefix .. id
end
