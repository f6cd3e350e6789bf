#!lua flags=allow-oom
-- Claims the newest unread requests of a class above its cap, which will be answered `queue_full`; and unread cancels, which
-- are not requests and must not count as such.
--
-- KEYS  1 stream, 2 trouble
-- ARGV  1 consumer, 2 cap, 3 how many at most, 4 bytes at most, 5 look for cancels after this entry id, 6 claim requests
--       before this one, 0-0: any
-- Returns as sweep does: { entries, {}, oversized, more, last id, first id }; entries each { id, 0, 0, { field, value, ... } },
-- the newest request first, all of them now the caller's; more: 1 when there may be more: call again with these ids
-- First it looks for cancels, from the oldest unread entry on, each entry once. Then it knows the number of waiting requests,
-- and claims the newest. A call reads 256 entries or 1 MiB for each of the two, so the first calls may claim nothing.
-- Retries (entries with an `_id` that `trouble` confirms) were accepted and are skipped, 256 of them at most.
-- May not: claim what a worker has read; refuse a request before it knows that at least `cap` others wait before it.
-- It runs when Redis is full, because it makes room.

-- include lib/call.lua

local stream, trouble = KEYS[1], KEYS[2]
local me, cap, most, max_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local last, first = ARGV[5], ARGV[6]
local LOOKS, LOOK_BYTES, AHEAD_MS = 256, 1048576, 2000
local entries, oversized, bytes = {}, {}, 0
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- include lib/entries.lua
-- include lib/names.lua
-- include lib/trouble.lua

local PREFIX = prefix_of(stream)

local function size_and_kind(id, fields)
  local size, kind, name = 0, 'request', nil
  for i = 1, #fields, 2 do
    size = size + #fields[i] + #fields[i + 1]
    if fields[i] == 'cancel' then kind = 'cancel' end
    if fields[i] == '_id' then name = name or fields[i + 1] end
  end
  if kind == 'request' and name then
    local known = known_of(name)
    if known == nil or is_carrier(id, known, name, PREFIX) then kind = 'retry' end
  end
  return size, kind
end

local function is_pending(id)
  return call('XPENDING', stream, 'sluice', id, id, 1)[1]
end

-- Returns false when the answer is full.
local function take(id, fields, size)
  if #entries + #oversized == most or (bytes + size > max_bytes and #entries > 0) then return false end
  call('XCLAIM', stream, 'sluice', me, 0, id, 'FORCE', 'JUSTID')
  if size > max_bytes then
    oversized[#oversized + 1] = id
  else
    bytes = bytes + size
    entries[#entries + 1] = {id, 0, 0, fields}
  end
  return true
end

-- Returns true when it has reached the end of the stream. It reads entry by entry, because the size of the next one is unknown.
local function take_cancels()
  local looked = 0
  for _ = 1, LOOKS do
    local message = next_entry(stream, last, '+')
    if not message then return true end
    local size, kind = size_and_kind(message[1], message[2])
    if kind == 'cancel' and not is_pending(message[1]) and not take(message[1], message[2], size) then return false end
    last = message[1]
    looked = looked + size
    if looked > LOOK_BYTES then return false end
  end
  return false
end

-- Returns 1 when it has taken some and may take more.
local function take_newest(above, from)
  local taken, looked = 0, 0
  for _ = 1, LOOKS do
    if taken >= above or from == LAST_ID then return 0 end
    local message = call('XREVRANGE', stream, first == '0-0' and '+' or '(' .. first, '(' .. from, 'COUNT', 1)[1]
    if not message then return 0 end
    local size, kind = size_and_kind(message[1], message[2])
    if kind == 'request' and not is_pending(message[1]) then
      if not take(message[1], message[2], size) then break end
      taken = taken + 1
    end
    first = message[1]
    looked = looked + size
    if looked > LOOK_BYTES then break end
  end
  return taken > 0 and 1 or 0
end

if call('EXISTS', stream) == 0 then return {entries, {}, oversized, 0, last, first} end
local read = read_until(stream) or '0-0'
local far = tonumber(string.match(last, '^%d+')) > now + AHEAD_MS -- after an id that a producer made up: newer ones are lower
if far or newer(read, last) then last = read end
if not take_cancels() then return {entries, {}, oversized, 1, last, first} end
local above = call('XLEN', stream) - call('XPENDING', stream, 'sluice')[1] - cap
local more = take_newest(above, read)
return {entries, {}, oversized, more, last, first}
