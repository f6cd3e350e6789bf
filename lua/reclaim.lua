#!lua
-- Takes over entries of workers that died, and those that a worker gave back.
--
-- KEYS  1 stream, 2 trouble, then for each consumer its alive key
-- ARGV  1 consumer (me), 2 how many at most, 3 bytes at most, 4 name prefix of the class ('', 'high:', 'low:'),
--       then the consumers in the order of their alive keys (never me); `released` is nobody and never alive
-- Returns { entries, vanished, oversized, more }
--       entries    each { id, 1 when its worker died or 0 when it was released, open lonely runs, { field, value, ... } },
--                  now mine; with open lonely runs it is suspect, whoever gave it back
--       vanished   ids whose message is no longer in the stream: XCLAIM would drop them without a word, so they stay
--                  pending until settle answers them as `gone`
--       oversized  ids of single entries above the byte limit, not claimed: to be answered unread
--       more       1 when a limit ended the search
-- Consumers without alive key that hold nothing any more are deleted.
-- May not: judge by idle time or delivery counts; charge anybody (an entry that a dead worker merely held is only suspect);
-- touch an entry of a living worker; delete a consumer that holds anything (Redis would drop its pending entries).

local call = redis.call
local stream, trouble = KEYS[1], KEYS[2]
local me, limit, max_bytes, prefix = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local entries, vanished, oversized, more = {}, {}, {}, 0
local found, bytes = 0, 0

-- include lib/entries.lua
-- include lib/trouble.lua

-- False when it has to wait for the next call.
local function take(id, died)
  local message = call('XRANGE', stream, id, id)[1]
  if not message then
    vanished[#vanished + 1] = id
    return true
  end
  local size, name = size_and_name(id, message[2], prefix)
  if size > max_bytes then
    oversized[#oversized + 1] = id
    return true
  end
  if bytes + size > max_bytes then return false end
  bytes = bytes + size
  call('XCLAIM', stream, 'sluice', me, 0, id, 'JUSTID')
  entries[#entries + 1] = {id, died, lonely_runs(id, name), message[2]}
  return true
end

local function take_from(consumer)
  local died = consumer == 'released' and 0 or 1
  for _, pending in ipairs(call('XPENDING', stream, 'sluice', '-', '+', limit - found + 1, consumer)) do
    if found == limit or not take(pending[1], died) then
      more = 1
      return
    end
    found = found + 1
  end
  if died == 1 and #call('XPENDING', stream, 'sluice', '-', '+', 1, consumer) == 0 then
    call('XGROUP', 'DELCONSUMER', stream, 'sluice', consumer)
  end
end

for i = 5, #ARGV do
  local judged = ARGV[i] == 'released' or ARGV[i] ~= me and call('EXISTS', KEYS[i - 2]) == 0
  if more == 0 and judged then take_from(ARGV[i]) end
end
return {entries, vanished, oversized, more}
