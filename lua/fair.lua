#!lua
-- Takes unread entries from further back in a stream, of tenants other than those that have enough: so that one tenant's
-- million entries do not hide another's ten.
--
-- KEYS  1 stream
-- ARGV  1 consumer, 2 look behind this entry id, 3 how many to look at, 4 how many to take, 5 bytes at most, then the
--       tenants that have enough; '' stands for entries without a tenant
-- Returns as reclaim does, and how far it looked: { entries, {}, {}, more, last id }; entries each { id, 0, 0, { field,
-- value, ... } }, now the caller's; more: 1 when a limit ended the search before the end of the stream
-- What was taken ahead is delivered again if it is still there when XREADGROUP reaches it: to the same worker, which knows
-- it, or to another, and then the first to finish wins.
-- May not: take what somebody has read; run when Redis is out of memory.

local call = redis.call
local stream, me = KEYS[1], ARGV[1]
local look, most, max_bytes = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local CHUNK = 100
local entries, bytes, enough = {}, 0, {}
for i = 6, #ARGV do enough[ARGV[i]] = true end

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

-- False when the answer is full.
local function look_at(id, fields)
  local size, tenant = size_and_tenant(fields)
  if enough[tenant] or size > max_bytes or call('XPENDING', stream, 'sluice', id, id, 1)[1] then return true end
  if #entries == most or bytes + size > max_bytes then return false end
  bytes = bytes + size
  call('XCLAIM', stream, 'sluice', me, 0, id, 'FORCE', 'JUSTID')
  entries[#entries + 1] = {id, 0, 0, fields}
  return true
end

local function search(last)
  while look > 0 do
    local wanted = math.min(CHUNK, look)
    local chunk = call('XRANGE', stream, '(' .. last, '+', 'COUNT', wanted)
    for _, message in ipairs(chunk) do
      if not look_at(message[1], message[2]) then return 1, last end
      last = message[1]
    end
    if #chunk < wanted then return 0, last end
    look = look - wanted
  end
  return 1, last
end

if call('EXISTS', stream) == 0 then return {entries, {}, {}, 0, ARGV[2]} end
local behind, read = ARGV[2], read_until(stream) or '0-0'
local more, last = search(newer(read, behind) and read or behind)
return {entries, {}, {}, more, last}
