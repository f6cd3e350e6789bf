#!lua flags=no-writes
-- Lists requests of a class, or parked ones, for people: which consumer has each, and its first bytes.
--
-- KEYS  1 stream, or later, 2 trouble, 3 later:data if 1 is later
-- ARGV  1 `unread`, `pending` or `later`, 2 list those after this entry id, in later this many, '' for all
-- Returns { where to continue after, '' at the end; then for each, the oldest first, { name, consumer that has it or '', ms
-- since it was delivered, deliveries, bytes of its fields, field, value, field, value, ... } }
--       later     the next one first, with the ms when it is due in place of those since the delivery
--       fields    id, tenant, text and inputs, as far as they are there, and the first 200 bytes of each
--       consumer  a worker, `released` (given back by one), or `ahead` (set aside for any worker with room)
--       unread    entries that the group has not reached yet, without those taken ahead of their turn
-- May not: write; read more than 64 entries, or on after 1 MiB.

-- include lib/call.lua

local stream, trouble, unread, later, last = KEYS[1], KEYS[2], ARGV[1] == 'unread', ARGV[1] == 'later', ARGV[2]
local SHOWN, SHOWN_BYTES = {id = true, tenant = true, text = true, inputs = true}, 200

-- include lib/names.lua
-- include lib/entries.lua
-- include lib/trouble.lua

local PREFIX = prefix_of(stream)
local delivered = not later and call('EXISTS', stream) == 1 and read_until(stream)
if last == '' and not later then last = unread and delivered or '0-0' end

-- Returns the first bytes of a text, without a part of a character at the end.
local function cut(text)
  if #text <= SHOWN_BYTES then return text end
  return (string.gsub(string.sub(text, 1, SHOWN_BYTES), '[\192-\255][\128-\191]*$', ''))
end

local function pending_from(from, to)
  return delivered and call('XPENDING', stream, 'sluice', from, to, 1)[1]
end

-- Returns the id of the next entry, its row of XPENDING and its fields; a pending entry whose message was deleted has none.
local function next_of_list()
  if unread then
    local message = next_entry(stream, last, '+')
    if message then return message[1], pending_from(message[1], message[1]), message[2] end
  else
    local pending = last ~= LAST_ID and pending_from('(' .. last, '+')
    if pending then return pending[1], pending, (call('XRANGE', stream, pending[1], pending[1])[1] or {})[2] or {} end
  end
end

-- Returns whether a name from `_id` is this entry's. If `trouble` cannot be read, every possible name of this class (at most 47
-- characters) is believed.
local function is_named(id, name)
  local known = known_of(name)
  if known == nil then return #name < 48 and string.match(name, '^(%l*:?)%d+%-%d+$') == PREFIX end
  return is_carrier(id, known, name, PREFIX)
end

-- Returns a row with the shown fields after its facts.
local function show(shown, fields)
  local seen = {}
  for i = 1, #fields, 2 do
    if SHOWN[fields[i]] and not seen[fields[i]] then
      seen[fields[i]] = true
      shown[#shown + 1] = fields[i]
      shown[#shown + 1] = cut(fields[i + 1])
    end
  end
  return shown
end

local found, looked = {''}, 0

-- Lists parked requests, by rank: one that becomes due moves those after it.
local function list_later()
  local from = tonumber(last) or 0
  local parked = call('ZRANGE', stream, from, from + LOOKS, 'WITHSCORES')
  for i = 1, #parked, 2 do
    if i > 2 * LOOKS or looked >= LOOK_BYTES then
      found[1] = tostring(from + #found - 1)
      break
    end
    local fields = parked_fields(KEYS[3], parked[i])
    local size = size_and_name('', fields, '')
    found[#found + 1] = show({parked[i], '', parked[i + 1], 0, size}, fields)
    looked = looked + size
  end
  return found
end

if later then return list_later() end
for _ = 1, LOOKS do
  local id, pending, fields = next_of_list()
  if not id then return found end
  local size, name = size_and_name(id, fields, PREFIX)
  if not (unread and pending) then
    if name ~= PREFIX .. id and not is_named(id, name) then name = PREFIX .. id end
    local row = {name, pending and pending[2] or '', pending and pending[3] or 0, pending and pending[4] or 0, size}
    found[#found + 1] = show(row, fields)
  end
  last, looked = id, looked + size
  if looked >= LOOK_BYTES then break end
end
found[1] = last
return found
