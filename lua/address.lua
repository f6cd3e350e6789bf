#!lua flags=no-writes
-- Returns only the fields that say where the answer to an entry goes, because Redis closes each connection on which it sends
-- the whole entry.
--
-- KEYS  1 stream, 2 trouble
-- ARGV  1 entry id, 2 name prefix of the class ('', 'high:', 'low:')
-- Returns as reclaim does: { entries, vanished, {}, 0 }
--       entries   { id, 3, 0, { field, value, ... } }, with few fields; none if it has vanished
--       vanished  the id, if its message is no longer in the stream
-- May not: write; read another entry.

-- include lib/call.lua

local stream, trouble, id, prefix = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

-- include lib/entries.lua
-- include lib/trouble.lua
-- include lib/address.lua

local message = call('XRANGE', stream, id, id)[1]
if not message then return {{}, {id}, {}, 0} end
local _, name = size_and_name(id, message[2], prefix)
local returned = name ~= prefix .. id and is_carrier(id, known_of(name), name, prefix)
return {{{id, 3, 0, address_of(message[2], returned and name)}}, {}, {}, 0}
