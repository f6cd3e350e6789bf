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
local entries, oversized, bytes = {}, {}, 0
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- include lib/entries.lua
-- include lib/trouble.lua
-- include lib/walk.lua

local function look_at(id, fields)
  local size, name = size_and_name(id, fields, prefix)
  if is_pending(id) then return size end
  return size, not take(id, size, {id, 0, open_runs(id, name), fields})
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

local more, last = 0, ARGV[2]
local read = call('EXISTS', stream) == 1 and read_until(stream)
if read then more, last = walk(last, read, look_at) end
if prefix == '' and more == 0 then
  more = sweep_later()
end
return {entries, {}, oversized, more, last}
