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
-- and claims the newest. A call reads 64 entries or 1 MiB for each of the two, so the first calls may claim nothing.
-- Retries (entries with an `_id` that `trouble` confirms) were accepted and are skipped, 64 of them at most.
-- May not: claim what a worker has read; refuse a request before it knows that at least `cap` others wait before it.
-- It runs when Redis is full, because it makes room.

-- include lib/call.lua

local stream, trouble = KEYS[1], KEYS[2]
local me, cap, most, max_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local last, first = ARGV[5], ARGV[6]
local entries, oversized, bytes = {}, {}, 0
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- include lib/entries.lua
-- include lib/names.lua
-- include lib/trouble.lua
-- include lib/walk.lua

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

local function look_for_cancel(id, fields)
  local size, kind = size_and_kind(id, fields)
  return size, kind == 'cancel' and not is_pending(id) and not take(id, size, {id, 0, 0, fields})
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
      if not take(message[1], size, {message[1], 0, 0, message[2]}) then break end
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
local more
more, last = walk(last, '+', look_for_cancel)
if more == 1 then return {entries, {}, oversized, 1, last, first} end
local above = call('XLEN', stream) - call('XPENDING', stream, 'sluice')[1] - cap
more = take_newest(above, read)
return {entries, {}, oversized, more, last, first}
