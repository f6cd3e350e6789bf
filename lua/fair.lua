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
local entries, oversized, bytes, enough = {}, {}, 0, {}
for i = 5, #ARGV do enough[ARGV[i]] = true end

-- include lib/entries.lua
-- include lib/names.lua
-- include lib/walk.lua

local function look_at(id, fields)
  local size, tenant = 0, nil
  for i = 1, #fields, 2 do
    size = size + #fields[i] + #fields[i + 1]
    if fields[i] == 'tenant' and not tenant then tenant = fields[i + 1] end
  end
  if enough[tenant or ''] or size > max_bytes or is_pending(id) then return size end
  return size, not take(id, size, {id, 0, 0, fields})
end

if call('EXISTS', stream) == 0 then return {entries, {}, {}, 0, ARGV[2]} end
if me == 'ahead' and #call('XPENDING', stream, 'sluice', '-', '+', ASIDE, me) == ASIDE then return {entries, {}, {}, 1, ARGV[2]} end
local behind, read = ARGV[2], read_until(stream) or '0-0'
local time = call('TIME')
-- After an id that a producer made up, no entry may come any more: ids are lower again once lua/mend has run.
local far = tonumber(string.match(behind, '^%d+')) > time[1] * 1000 + AHEAD_MS
local more, last = walk((far or newer(read, behind)) and read or behind, '+', look_at)
return {me == 'ahead' and {} or entries, {}, {}, more, last}
