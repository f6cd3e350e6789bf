#!lua flags=allow-oom
-- Repairs streams whose ids are more than two seconds ahead of Redis' clock: a producer made one up (XADD without `*`), and from
-- then on `*` continues from it, or is refused for ever.
--
-- KEYS  1 later, 2 later:data, 3 trouble, 4 meta, 5 requests:high, 6 requests, 7 requests:low
-- ARGV  1 consumer, then for each entry that the caller has seen ahead of the clock, in the order of their ids: class (0 high,
--       1 normal, 2 low), id, and `move` or, where its fields are too large to be read here, `take`; 48 entries and 512 KiB
--       of `move` at most
-- Returns { entries moved, streams set back, 1 if entries are still ahead, entries taken }
-- The size of an entry is unknown until it is read, and Lua needs 2.4 ms for 1 MiB: so this reads only entries that the caller
-- has weighed (src/redis/queue_chores.c).
-- A moved entry goes to `later`, due now, and promote brings it back with a new id under its old name. Entries that a worker
-- holds move, too: its settle finds them no longer pending. An entry to be taken becomes the caller's, unless another consumer
-- has it and will answer it. When the last one has left, the stream continues two seconds ahead of the clock, which is after
-- every id that stayed; the last id of the group is set back with it. Until then promote does not touch the class. Ids that
-- left the stream while they were ahead (lib/ahead) may be names still in use when their time comes: two seconds before, the
-- stream jumps over that time in the same way. So `*` never repeats a name.
-- May not: move an entry that it may not remove; record or clear a run alone (promote carries the record in `trouble` over).

-- include lib/call.lua

local later, data, trouble, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local me = ARGV[1]
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stream, moved, taken, streams, more = nil, 0, 0, 0, 0

-- include lib/names.lua
-- include lib/trouble.lua
-- include lib/entries.lua
-- include lib/later.lua
-- include lib/ahead.lua

-- Returns the id that a stream is set back to: `*` continues with the last ms that is believed, or with a later one if names of
-- that ms were moved, for example by another call in this same ms.
local function last_present(kept)
  local ms = now + AHEAD_MS - 1
  while kept[ms + 1] do ms = ms + 1 end
  return string.format('%.0f-18446744073709551615', ms)
end

-- Returns whether one of the kept times comes now, and drops the times that have come.
local function comes_now(kept)
  local comes = false
  for ms in pairs(kept) do
    comes = comes or ms >= now and ms < now + AHEAD_MS
    if ms < now + AHEAD_MS then kept[ms] = nil end
  end
  return comes
end

-- --- Moving ---

-- Returns the name that an entry carries, and whether it comes from `_id`.
local function whose(id, fields)
  local name = nil
  for i = 1, #fields, 2 do
    if fields[i] == '_id' then name = name or fields[i + 1] end
  end
  if name and string.match(name, '^(%l*:?)%d+%-%d+$') == prefix_of(stream) then
    local known = known_of(name)
    local believed = known == nil and not call('HGET', data, name)
    if believed or is_carrier(id, known, name, prefix_of(stream)) then return name, true end
  end
  return prefix_of(stream) .. id, false
end

local function attempt_of(fields, claims)
  for i = 1, #fields, 2 do
    if claims and fields[i] == '_attempt' and tonumber(fields[i + 1]) then return fields[i + 1] end
  end
  return '1'
end

local function move(class, id, fields, kept)
  local name, claims = whose(id, fields)
  local attempt, own, first_at = attempt_of(fields, claims), own_fields(fields, name, claims)
  while #own > FIELDS_MAX do own[#own] = nil end -- still too many, so it is refused all the same
  local class_word = tostring(class - 1)
  name = parking_name(id, name, claims, class_word, attempt, own)
  put_into_later(name, class_word, attempt, first_at, own, now + moved / 1000) -- in their order
  leave_stream(id)
  keep(kept, id)
  moved = moved + 1
end

-- Leaves an entry that a consumer has: only reclaim judges whether that consumer is alive, and counts takeovers.
local function take(id)
  if not read_until(stream) or call('XPENDING', stream, 'sluice', id, id, 1)[1] then return end
  taken = taken + #call('XCLAIM', stream, 'sluice', me, 0, id, 'FORCE', 'JUSTID')
end

-- Moves or takes the entries that the caller has seen, and returns whether any of them was still there.
local function leave(class, kept)
  local found = false
  for i = 2, #ARGV, 3 do
    local id, large = ARGV[i + 1], ARGV[i + 2] == 'take'
    if ARGV[i] == tostring(class - 1) and is_beyond(id) then
      local message = not large and call('XRANGE', stream, id, id)[1]
      if message then move(class, id, message[2], kept) end
      if large then take(id) end
      found = found or large or message
    end
  end
  return found
end

-- Redis refuses this while an entry is ahead, and from 7.2 on also below the highest id that was ever deleted. At the last
-- possible id, XSETID may lower that record. After that only an entry can prevent it; then the stream gets its own last id
-- back, which is read through the group: XINFO STREAM would also return the first and the last entry, which may be large.
local function set_back(last)
  need('XSETID', stream, last)
  if not read_until(stream) then call('XGROUP', 'CREATE', stream, 'sluice', '0') end
  local read = read_until(stream)
  call('XGROUP', 'SETID', stream, 'sluice', '$')
  local was = read_until(stream)
  call('XSETID', stream, LAST_ID, 'MAXDELETEDID', last)
  if try('XSETID', stream, last).err then
    call('XSETID', stream, was)
    more = 1
  else
    if newer(read, last) then read = last end
    streams = streams + 1
  end
  call('XGROUP', 'SETID', stream, 'sluice', read)
end

local function mend(class)
  local kept, before = kept_of(stream)
  local comes, ahead = comes_now(kept), is_ahead(stream, now + AHEAD_MS)
  if ahead or ARGV[2] then need_all() end
  if leave(class, kept) or ahead then
    set_back(last_present(kept))
  elseif comes then
    try('XSETID', stream, last_present(kept))
  end
  write_kept(stream, kept, before)
end

for class = 1, 3 do
  stream = KEYS[4 + class]
  if unless_wrong(try('XLEN', stream)) then mend(class) end
end
return {moved, streams, more, taken}
