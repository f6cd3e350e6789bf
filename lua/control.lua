#!lua flags=allow-oom
-- Looks at the control stream, where nothing waits behind requests: entries with the field `cancel`.
--
-- KEYS  1 control
-- ARGV  1 how many at most, 2 look behind this entry id
-- Returns { id, name, id, name, ... }, the oldest first; the name is what `cancel` says, '' where there is no such field or it
-- is longer than any name: lua/cancel then finds nothing, and the entry goes all the same
-- There is no group: an entry is anybody's until lua/cancel has removed it. A stream without entries is removed, so that its
-- ids begin anew whatever ids producers have made up.
-- May not: remove an entry; look at more than one entry beyond 1 MiB.

local call = redis.call
local control, most, last = KEYS[1], tonumber(ARGV[1]), ARGV[2]
local LOOK_BYTES, NAME_MAX, LAST_ID = 1048576, 64, '18446744073709551615-18446744073709551615' -- no range begins behind it
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
