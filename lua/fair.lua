#!lua
-- Claims unread entries from further back in a stream, of tenants that do not have enough yet, so that one tenant's million
-- entries do not hide another's ten.
--
-- KEYS  1 stream
-- ARGV  1 consumer, or `ahead` to set them aside for any worker with room, 2 start after this entry id, 3 how many to claim,
--       4 bytes at most, then the tenants that have enough; '' stands for entries without a tenant
-- Returns as reclaim does, and how far it has read: { entries, {}, {}, more, last id }; entries each { id, 0, 0, { field,
-- value, ... } }, now the caller's, and none when they were set aside; more: 1 when a limit ended the search before the end of
-- the stream
-- XREADGROUP delivers such an entry again if it is still there: to the same worker, which knows it, or to another; then the
-- first to finish wins.
-- May not: claim what another worker has read; read more than 64 entries, or on after 1 MiB; set aside more than 256; run when
-- Redis is out of memory.

-- include lib/call.lua

local stream, me = KEYS[1], ARGV[1]
local most, max_bytes = tonumber(ARGV[3]), tonumber(ARGV[4])
local ASIDE = 256
local entries, taken, bytes, looked, enough = {}, 0, 0, 0, {}
for i = 5, #ARGV do enough[ARGV[i]] = true end

-- include lib/entries.lua
-- include lib/names.lua

local function size_and_tenant(fields)
  local size, tenant = 0, nil
  for i = 1, #fields, 2 do
    size = size + #fields[i] + #fields[i + 1]
    if fields[i] == 'tenant' and not tenant then tenant = fields[i + 1] end
  end
  return size, tenant or ''
end

-- Returns false when the answer is full.
local function look_at(id, fields)
  local size, tenant = size_and_tenant(fields)
  looked = looked + size
  if enough[tenant] or size > max_bytes or call('XPENDING', stream, 'sluice', id, id, 1)[1] then return true end
  if taken == most or bytes + size > max_bytes then return false end
  bytes = bytes + size
  call('XCLAIM', stream, 'sluice', me, 0, id, 'FORCE', 'JUSTID')
  taken = taken + 1
  if me ~= 'ahead' then entries[taken] = {id, 0, 0, fields} end
  return true
end

local function search(last)
  for _ = 1, LOOKS do
    local message = next_entry(stream, last, '+')
    if not message then return 0, last end
    if not look_at(message[1], message[2]) then return 1, last end
    last = message[1]
    if looked >= LOOK_BYTES then return 1, last end
  end
  return 1, last
end

if call('EXISTS', stream) == 0 then return {entries, {}, {}, 0, ARGV[2]} end
if me == 'ahead' and #call('XPENDING', stream, 'sluice', '-', '+', ASIDE, me) == ASIDE then return {entries, {}, {}, 1, ARGV[2]} end
local behind, read = ARGV[2], read_until(stream) or '0-0'
local time = call('TIME')
-- After an id that a producer made up, no entry may come any more: ids are lower again once lua/mend has run.
local far = tonumber(string.match(behind, '^%d+')) > time[1] * 1000 + AHEAD_MS
local more, last = search((far or newer(read, behind)) and read or behind)
return {entries, {}, {}, more, last}
