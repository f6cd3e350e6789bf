#!lua flags=allow-oom
-- Parks requests until they are due: for a delay, or for a retry after a failure.
--
-- KEYS  1 stream, 2 later, 3 later:data, 4 trouble, 5 meta
-- ARGV  1 consumer, 2 class (0 high, 1 normal, 2 low), then for each entry:
--         entry id, original name, claims (1: the name comes from `_id`), number of the next attempt,
--         delay in ms from now, unix ms before which it is not due (0: none); the later one counts
-- Returns one number for each entry.
--        1  parked
--        0  late: no longer pending
--       -1  another consumer owns it and decides what happens next. A run alone of the caller is removed from the record,
--           because it crashed no worker
--       -2  the message is no longer in the stream but still pending; it needs settle's `gone`
--       -3  the name is not this entry's (a producer wrote the `_id`); nothing was changed
--       -7  `later` is full (meta.cap_later), and this is a delay at submission; nothing was changed. Retries and requests that
--           came back from `later` are never refused
--       -6  more fields than a request may have; nothing was changed, it needs an error reply
-- The failed run ended without a crash, so the entry's count of runs alone restarts. An entry whose id is the name of another
-- request (a producer used it a second time) is parked under a new name.
-- May not: overwrite another parked request; take fields from the caller (it reads them here, so that exactly what was sent
-- comes back); remove an entry before it is in later and later:data; park one that it may not remove.

-- include lib/call.lua

local stream, later, data, trouble, meta = unpack(KEYS)
local consumer, class = ARGV[1], ARGV[2]
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- include lib/names.lua
-- include lib/trouble.lua
-- include lib/later.lua
-- include lib/ahead.lua

-- Returns how many requests may be in `later`.
local function cap_of_later()
  local cap = tonumber(unless_wrong(try('HGET', meta, 'cap_later')) or '') or 0
  return cap > 0 and cap or math.huge
end

local CAP = cap_of_later()

local function park(id, name, claims, attempt, delay, due_at)
  local pending = call('XPENDING', stream, 'sluice', id, id, 1)[1]
  if not pending then
    uncharge(id, name, consumer)
    return 0
  end
  local message = call('XRANGE', stream, id, id)[1]
  if not message then return -2 end
  if #message[2] > FIELDS_MAX then return -6 end
  local own, first_at = own_fields(message[2], name, claims == '1')
  local parked_as = parking_name(id, name, claims == '1', class, attempt, own)
  if not parked_as then return -3 end
  if pending[2] ~= consumer then
    uncharge(id, name, consumer)
    return -1
  end
  if claims == '0' and attempt == '1' and call('ZCARD', later) >= CAP and not call('HGET', data, parked_as) then return -7 end
  put_into_later(parked_as, class, attempt, first_at, own, math.max(now + delay, due_at))
  if known_of(parked_as) ~= nil then call('HSET', trouble, parked_as, (attempt - 1) .. ' 0 ' .. id) end
  keep_account(stream, {id})
  leave_stream(id)
  return 1
end

need_all()
local results = {}
for i = 3, #ARGV, 6 do
  results[#results + 1] = park(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5])
end
return results
