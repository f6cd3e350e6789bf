#!lua flags=allow-oom
-- Reads cancels from the control stream, where they do not wait behind requests.
--
-- KEYS  1 control
-- ARGV  1 how many at most, 2 read after this entry id
-- Returns { id, name, id, name, ... }, the oldest first. The name is the value of `cancel`; '' if the field is missing or longer
-- than any name: lua/cancel then finds nothing and removes the entry
-- There is no group: any worker may take an entry until lua/cancel has removed it. An empty stream is deleted, so that its ids
-- start afresh whatever ids producers have made up.
-- May not: remove an entry; read on after 1 MiB.

-- include lib/call.lua

local control, most, last = KEYS[1], tonumber(ARGV[1]), ARGV[2]
local LOOK_BYTES, NAME_MAX, LAST_ID = 1048576, 64, '18446744073709551615-18446744073709551615' -- no range begins after it
local found, looked = {}, 0

local function name_in(fields)
  local name = nil
  for i = 1, #fields, 2 do
    looked = looked + #fields[i] + #fields[i + 1]
    if fields[i] == 'cancel' then name = name or fields[i + 1] end
  end
  return name and #name <= NAME_MAX and name or ''
end

while #found < 2 * most and looked < LOOK_BYTES do
  local message = last ~= LAST_ID and call('XRANGE', control, '(' .. last, '+', 'COUNT', 1)[1]
  if not message then break end
  found[#found + 1] = message[1]
  found[#found + 1] = name_in(message[2])
  last = message[1]
end
if #found == 0 and call('XLEN', control) == 0 then call('DEL', control) end
return found
