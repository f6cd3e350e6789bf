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

-- The last id that XREADGROUP has given out.
local function read_until()
  for _, group in ipairs(call('XINFO', 'GROUPS', stream)) do
    local facts = {}
    for i = 1, #group, 2 do facts[group[i]] = group[i + 1] end
    if facts.name == 'sluice' then return facts['last-delivered-id'] end
  end
  return '0-0'
end

-- Numbers as decimal text without leading zeros: a sequence number may not fit into a double.
local function later_of(a, b)
  local ms_a, seq_a = string.match(a, '^(%d+)%-(%d+)$')
  local ms_b, seq_b = string.match(b, '^(%d+)%-(%d+)$')
  local function less(x, y) return #x < #y or (#x == #y and x < y) end
  return (less(ms_a, ms_b) or (ms_a == ms_b and less(seq_a, seq_b))) and b or a
end

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
local more, last = search(later_of(ARGV[2], read_until()))
return {entries, {}, {}, more, last}
