#!lua flags=no-writes
-- Lists requests of a class for people: which consumer has each, and its first bytes.
--
-- KEYS  1 stream, 2 trouble
-- ARGV  1 `unread` or `pending`, 2 list those after this entry id, '' for all
-- Returns { entry id to continue after, '' at the end; then for each, the oldest first, { name, consumer that has it or '', ms
-- since it was delivered, deliveries, bytes of its fields, field, value, field, value, ... } }
--       fields    id, tenant, text and inputs, as far as they are there, and the first 200 bytes of each
--       consumer  a worker, `released` (given back by one), or `ahead` (set aside for any worker with room)
--       unread    entries that the group has not reached yet, without those taken ahead of their turn
-- May not: write; read more than 64 entries, or on after 1 MiB.

-- include lib/call.lua

local stream, trouble, unread, last = KEYS[1], KEYS[2], ARGV[1] == 'unread', ARGV[2]
local SHOWN, SHOWN_BYTES = {id = true, tenant = true, text = true, inputs = true}, 200

-- include lib/names.lua
-- include lib/entries.lua
-- include lib/trouble.lua

local PREFIX = prefix_of(stream)
local delivered = call('EXISTS', stream) == 1 and read_until(stream)
if last == '' then last = unread and delivered or '0-0' end

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

local function show(id, pending, fields, size, name)
  if name ~= PREFIX .. id and not is_named(id, name) then name = PREFIX .. id end
  local shown = {name, pending and pending[2] or '', pending and pending[3] or 0, pending and pending[4] or 0, size}
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
for _ = 1, LOOKS do
  local id, pending, fields = next_of_list()
  if not id then return found end
  local size, name = size_and_name(id, fields, PREFIX)
  if not (unread and pending) then found[#found + 1] = show(id, pending, fields, size, name) end
  last, looked = id, looked + size
  if looked >= LOOK_BYTES then break end
end
found[1] = last
return found
