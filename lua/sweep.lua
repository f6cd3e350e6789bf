#!lua flags=allow-oom
-- Finds requests without an owner: entries that were delivered and are pending with no consumer (XGROUP DELCONSUMER by hand),
-- and parked requests that are missing in `later` (ZREM by hand).
--
-- KEYS  1 stream, 2 trouble, 3 later, 4 later:data
-- ARGV  1 consumer, 2 start after this entry id, 3 how many to claim, 4 bytes at most, 5 name prefix of the class ('',
--       'high:', 'low:')
-- Returns as reclaim does, and how far it has read: { entries, {}, oversized, more, last id }
--       entries    each { id, 0, open runs as in reclaim, { field, value, ... } }, now the caller's
--       oversized  ids of single entries above the byte limit, now the caller's too: they must be answered unread
--       more       1 if there is more to read: call again with the last id
-- The class without a prefix also checks `later`.
-- May not: touch an entry that is pending or unread; read more than 64 entries a call, or on after 1 MiB.

-- include lib/call.lua

local stream, trouble, later, data = unpack(KEYS)
local me, most, max_bytes, prefix = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local LOST_NAMES = 1000
local entries, oversized, bytes, looked = {}, {}, 0, 0
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- include lib/entries.lua
-- include lib/trouble.lua

-- Returns false when the entry has to wait for the next call.
local function look_at(id, fields)
  local size, name = size_and_name(id, fields, prefix)
  looked = looked + size
  if call('XPENDING', stream, 'sluice', id, id, 1)[1] then return true end
  if #entries + #oversized == most or (size <= max_bytes and bytes + size > max_bytes) then return false end
  call('XCLAIM', stream, 'sluice', me, 0, id, 'FORCE', 'JUSTID')
  if size > max_bytes then
    oversized[#oversized + 1] = id
  else
    bytes = bytes + size
    entries[#entries + 1] = {id, 0, open_runs(id, name), fields}
  end
  return true
end

local function sweep_stream(last)
  local read = call('EXISTS', stream) == 1 and read_until(stream)
  if not read then return 0, last end
  for _ = 1, LOOKS do
    local message = next_entry(stream, last, read)
    if not message then return 0, last end
    if not look_at(message[1], message[2]) then return 1, last end
    last = message[1]
    if looked >= LOOK_BYTES then return 1, last end
  end
  return 1, last
end

-- Makes parked requests due that nothing else would bring back. Returns 1 if there may be many more.
local function sweep_later()
  local parked, waiting = unless_wrong(try('HLEN', data)), unless_wrong(try('ZCARD', later))
  if not parked or not waiting or parked == 0 or parked == waiting then return 0 end
  local put_back = 0
  for _, name in ipairs(call('HRANDFIELD', data, LOST_NAMES)) do
    put_back = put_back + call('ZADD', later, 'NX', now, name)
  end
  return put_back > LOST_NAMES / 2 and 1 or 0
end

local more, last = sweep_stream(ARGV[2])
if prefix == '' and more == 0 then
  more = sweep_later()
end
return {entries, {}, oversized, more, last}
