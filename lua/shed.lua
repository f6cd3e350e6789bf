#!lua
-- Takes the newest unread entries of a class above its cap, so that they can be answered `queue_full`.
--
-- KEYS  1 stream
-- ARGV  1 consumer, 2 cap, 3 how many at most, 4 bytes at most
-- Returns as reclaim does: { entries, {}, {}, more }; entries each { id, 0, 0, { field, value, ... } }, the newest first, now
-- the caller's; more: 1 when there are more above the cap
-- Retries (entries with `_id`) and cancels are passed by: the first were accepted, the second make room. So is an entry
-- larger than the byte limit.
-- May not: take what somebody has read; run when Redis is out of memory (its answers need some).

local call = redis.call
local stream, me = KEYS[1], ARGV[1]
local cap, most, max_bytes = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local CHUNK, PASSED_MAX = 16, 1000
local entries, bytes, passed = {}, 0, 0

-- include lib/entries.lua

local function size_and_kind(fields)
  local size, request = 0, true
  for i = 1, #fields, 2 do
    size = size + #fields[i] + #fields[i + 1]
    if fields[i] == '_id' or fields[i] == 'cancel' then request = false end
  end
  return size, request
end

-- False when the answer is full.
local function take(id, fields)
  local size, request = size_and_kind(fields)
  if not request or size > max_bytes or call('XPENDING', stream, 'sluice', id, id, 1)[1] then
    passed = passed + 1
    return true
  end
  if bytes + size > max_bytes then return false end
  bytes = bytes + size
  call('XCLAIM', stream, 'sluice', me, 0, id, 'FORCE', 'JUSTID')
  entries[#entries + 1] = {id, 0, 0, fields}
  return true
end

if call('EXISTS', stream) == 0 then return {entries, {}, {}, 0} end
local above = call('XLEN', stream) - call('XPENDING', stream, 'sluice')[1] - cap
local wanted, full = math.min(above, most), false
local from, to = '(' .. (read_until(stream) or '0-0'), '+'
while not full and #entries < wanted and passed < PASSED_MAX do
  local chunk = call('XREVRANGE', stream, to, from, 'COUNT', CHUNK)
  if #chunk == 0 then break end
  for _, message in ipairs(chunk) do
    to = '(' .. message[1]
    if #entries == wanted or not take(message[1], message[2]) then
      full = true
      break
    end
  end
end
return {entries, {}, {}, #entries > 0 and above > #entries and 1 or 0}
