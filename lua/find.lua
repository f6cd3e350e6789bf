#!lua flags=no-writes
-- Finds unfinished requests by the id that their producer gave them, in the stream of a class (read or unread) or in `later`.
--
-- KEYS  1 the stream, or later, 2 trouble, 3 later:data
-- ARGV  1 the id, 2 the cursor of the last answer, '' at first
-- Returns { 1 when there is more, else 0; cursor; how many requests it looked at; name, name, ... }
--       cursor  the last entry id; in `later` the last score, and how many requests with that score it has looked at. A call
--               with the last cursor finds requests that have come since
-- The first field `id` counts, as for the worker. A cancel is not a request. An entry whose name is another request's is left
-- out, because lua/cancel would end that one.
-- May not: write; look at more than 64 requests, or on after 1 MiB; answer without having read `trouble`.

-- include lib/call.lua

local place, trouble, data, wanted, cursor = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]

-- include lib/names.lua
-- include lib/entries.lua
-- include lib/trouble.lua

local PREFIX = prefix_of(place)
local looked, bytes, found = 0, 0, {}

local function is_full()
  return looked >= LOOKS or bytes >= LOOK_BYTES
end

-- Returns whether these are the fields of a request with the id.
local function is_wanted(fields)
  local id = nil
  looked = looked + 1
  for i = 1, #fields, 2 do
    bytes = bytes + #fields[i] + #fields[i + 1]
    if fields[i] == 'id' then id = id or fields[i + 1] end
  end
  for i = 1, id == wanted and #fields or 0, 2 do
    if fields[i] == 'cancel' then return false end
  end
  return id == wanted
end

-- Returns the name of an entry; nil if its own id is the name of another request, which was parked under it.
local function name_of(id, claimed)
  local own = PREFIX .. id
  if claimed ~= own and is_carrier(id, call('HGET', trouble, claimed), claimed, PREFIX) then return claimed end
  local known = call('HGET', trouble, own)
  if known and not is_carrier(id, known, own, PREFIX) or call('HGET', data, own) then return nil end
  return own
end

local function look_through_stream()
  while not is_full() do
    local message = next_entry(place, cursor == '' and '0-0' or cursor, '+')
    if not message then return 0 end
    cursor = message[1]
    if is_wanted(message[2]) then
      local _, claimed = size_and_name(cursor, message[2], PREFIX)
      found[#found + 1] = name_of(cursor, claimed)
    end
  end
  return 1
end

-- Continues by score, not by rank: requests that leave from the front do not shift the others.
local function look_through_later()
  local due, same = string.match(cursor, '^(%S+) (%d+)$')
  same = tonumber(same or 0)
  local from = due and call('ZCOUNT', place, '-inf', '(' .. due) + same or 0
  local parked = call('ZRANGE', place, from, from + LOOKS - 1, 'WITHSCORES')
  for i = 1, #parked, 2 do
    if is_full() then return 1 end
    if is_wanted(parked_fields(data, parked[i])) then found[#found + 1] = parked[i] end
    same = parked[i + 1] == due and same + 1 or 1
    due = parked[i + 1]
    cursor = due .. ' ' .. same
  end
  return is_full() and 1 or 0
end

local more = string.find(place, ':later$') and look_through_later() or look_through_stream()
return {more, cursor, looked, unpack(found)}
