#!lua flags=allow-oom
-- Takes over entries of dead workers, entries that a worker gave back, and entries set aside for any worker with room.
--
-- KEYS  1 stream, 2 trouble, then for each consumer its alive key; those whose names are too long for a worker have none, and are
--       the last
-- ARGV  1 consumer (me), 2 how many at most (64; 0: none, only return `left`), 3 bytes at most, 4 name prefix of the class
--       ('', 'high:', 'low:'), then the consumers in the order of their alive keys (never me); `released` and `ahead` are
--       no workers and never alive
-- Returns { entries, vanished, oversized, more, left }
--       entries    each { id, how, open runs, { field, value, ... } }, now mine
--                    how        0 released, 1 its worker died, 2 its worker died, and it was taken over several times:
--                               charge it first, 3 taken over too often: answer it unread
--                    open runs  those alone; -1 if only runs in groups are open. With any it is suspect, even if released
--       vanished   ids whose message is no longer in the stream: XCLAIM would drop them silently, so they stay pending
--                  until settle answers them as `gone`
--       oversized  ids of single entries above the byte limit, now mine too: they must be answered unread
--       more       1 when a limit ended the search
--       left       dead consumers that still hold entries
-- Consumers without an alive key and without entries are deleted.
-- A worker that dies while it reads an entry has charged nothing. So each takeover from a dead worker is counted in trouble,
-- until a run of the entry is charged: by then it has been read. From the fourth takeover on the entry comes alone in the
-- answer, so that it cannot harm others; the tenth is the last: then it has only the fields that say where its reply goes,
-- which are checked here.
-- May not: judge by idle time or delivery counts; charge an entry (one that a dead worker merely held is only suspect); touch
-- an entry of a living worker; read on after 1 MiB; delete a consumer that holds anything (Redis would drop its pending
-- entries).

-- include lib/call.lua

local stream, trouble = KEYS[1], KEYS[2]
local me, max_bytes, prefix = ARGV[1], tonumber(ARGV[3]), ARGV[4]
local entries, vanished, oversized, more, judged, left = {}, {}, {}, 0, {}, {}
local found, bytes, looked, alone = 0, 0, 0, false
local TAKEN_BESIDE, TAKEN_MOST = 3, 10

-- include lib/entries.lua
-- include lib/trouble.lua
-- include lib/address.lua

-- Returns the name by which an entry is on record, whatever its `_id` says, and how often it was taken over, with this
-- time; no name if that count cannot be kept.
local function takeovers(id, claimed)
  local known, own = known_of(claimed), prefix .. id
  if claimed ~= own and not is_carrier(id, known, claimed, prefix) then
    claimed, known = own, known_of(own)
  end
  local attempts, carrier, runs, taken = read_record(known)
  if known == nil or carrier and carrier ~= id then return nil, 1 end
  return claimed, taken + 1, attempts, runs
end

-- Returns false when the entry has to wait for the next call.
local function take(id, died)
  local message = call('XRANGE', stream, id, id)[1]
  if not message then
    vanished[#vanished + 1] = id
    return true
  end
  local size, claimed = size_and_name(id, message[2], prefix)
  looked = looked + size
  if size > max_bytes then
    call('XCLAIM', stream, 'sluice', me, 0, id, 'JUSTID') -- settle lets only its owner end one whose id is ahead
    oversized[#oversized + 1] = id
    return true
  end
  local how, name, taken, attempts, runs = died, nil, 1, nil, nil
  if died == 1 then name, taken, attempts, runs = takeovers(id, claimed) end
  if alone or taken > TAKEN_BESIDE and #entries > 0 or bytes + size > max_bytes then return false end
  if taken > TAKEN_BESIDE then alone, how = true, taken < TAKEN_MOST and 2 or 3 end
  bytes = bytes + size
  if name then write_record(name, attempts, id, runs, taken) end
  call('XCLAIM', stream, 'sluice', me, 0, id, 'JUSTID')
  local told = how == 3 and address_of(message[2], name ~= prefix .. id and name) or message[2]
  entries[#entries + 1] = {id, how, open_runs(id, claimed), told}
  return true
end

local limit = math.min(tonumber(ARGV[2]), LOOKS)

local function is_nobody(consumer) return consumer == 'released' or consumer == 'ahead' end

local function held_by(consumer, most) return call('XPENDING', stream, 'sluice', '-', '+', most, consumer) end

local function take_from(consumer)
  local died = is_nobody(consumer) and 0 or 1
  for _, pending in ipairs(held_by(consumer, limit - found + 1)) do
    if found == limit or looked >= LOOK_BYTES or not take(pending[1], died) then
      more = 1
      return
    end
    found = found + 1
  end
  if died == 1 and #held_by(consumer, 1) == 0 then
    call('XGROUP', 'DELCONSUMER', stream, 'sluice', consumer)
  end
end

for i = 5, #ARGV do
  local alive = KEYS[i - 2]
  if is_nobody(ARGV[i]) or ARGV[i] ~= me and not (alive and call('EXISTS', alive) == 1) then judged[#judged + 1] = ARGV[i] end
end
for _, consumer in ipairs(judged) do
  if more == 0 then take_from(consumer) end
  if #held_by(consumer, 1) > 0 then left[#left + 1] = consumer end
end
return {entries, vanished, oversized, more, left}
