#!lua flags=allow-oom
-- Repairs streams whose ids are more than two seconds ahead of Redis' clock: a producer made one up (XADD without `*`), and from
-- then on `*` continues from it, or is refused for ever.
--
-- KEYS  1 later, 2 later:data, 3 trouble, 4 meta, 5 requests:high, 6 requests, 7 requests:low
-- ARGV  1 how many entries at most, 2 bytes after which no further entry is read
-- Returns { entries moved, streams set back, 1 when there is more to do now }
-- Entries with such ids move to `later`, due now, and promote brings them back with new ids under their old names.
-- So do entries that a worker holds: its settle finds them no longer pending. When the last one has moved, the last ids of the
-- stream and the group are set to now. Until then promote skips the class.
-- Names that were given out ahead of their time may still be in use when it comes. `ahead_high`, `ahead_normal` and `ahead_low` of
-- `meta` hold each such ms; shortly before it the stream's last id is set to the end of that ms, so that `*` repeats no name.
-- May not: move an entry that it may not remove; record or clear a run alone (promote carries the record in `trouble` over).

local call = redis.call
local later, data, trouble, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local CLASSES = {'high', 'normal', 'low'}
local most, max_bytes = tonumber(ARGV[1]), tonumber(ARGV[2])
local KEPT_MS, KEPT_MOST, SOON_MS = 366 * 86400000, 64, 1900
local time = call('TIME')
local micros = tonumber(time[2])
local now = time[1] * 1000 + math.floor(micros / 1000)
local stream, moved, bytes, set_back, more = nil, 0, 0, 0, 0

-- include lib/names.lua
-- include lib/trouble.lua
-- include lib/entries.lua
-- include lib/later.lua

-- A time of this very microsecond: greater than any id that `*` had made when it was set last.
local PRESENT = string.format('%.0f-%.0f', now, (micros % 1000 + 1) * 1000000)
local BEYOND = string.format('%.0f', now + AHEAD_MS + 1)

-- What a key answered, nil when it has a wrong type, which costs its class (or the names in meta) only.
local function unless_wrong(result)
  if type(result) ~= 'table' or not result.err then return result end
  if not string.find(result.err, '^WRONGTYPE') then error(result) end
  return nil
end

-- --- Names in times to come ---

local function ms_of(id)
  return tonumber(string.match(id or '', '^%d+')) or 0
end

-- `meta` has them as text: 'ms ms ...'.
local function kept_times(class)
  local kept, text = {}, unless_wrong(redis.pcall('HGET', meta, 'ahead_' .. CLASSES[class]))
  for ms in string.gmatch(text or '', '%d+') do kept[tonumber(ms)] = true end
  return kept, text
end

local function keep(kept, ms)
  if ms >= now and ms <= now + KEPT_MS then kept[ms] = true end
end

local function write_kept(class, kept, before)
  local times, words = {}, {}
  for ms in pairs(kept) do times[#times + 1] = ms >= now and ms or nil end
  table.sort(times)
  for i = 1, math.min(#times, KEPT_MOST) do words[i] = string.format('%.0f', times[i]) end
  local text = table.concat(words, ' ')
  if text == (before or '') then return end
  if text == '' then
    unless_wrong(redis.pcall('HDEL', meta, 'ahead_' .. CLASSES[class]))
  else
    unless_wrong(redis.pcall('HSET', meta, 'ahead_' .. CLASSES[class], text))
  end
end

-- Goes over those that come soon: `*` continues in the ms behind the last of them, which then counts as one of them. What the
-- group has read tells whether the stream is there already; where unread entries are, Redis refuses to go back.
local function go_over(kept)
  local last = 0
  for ms in pairs(kept) do
    if ms <= now + SOON_MS then last = math.max(last, ms) end
  end
  if last < now or call('EXISTS', stream) == 0 or ms_of(read_until(stream)) >= last then return end
  redis.pcall('XSETID', stream, string.format('%.0f-18446744073709551615', last))
  keep(kept, last + 1)
end

-- --- Moving ---

-- The name that an entry carries, and whether it comes from `_id`.
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
  while #own > FIELDS_MAX do own[#own] = nil end -- it is refused for fewer, too
  local class_word = tostring(class - 1)
  name = parking_name(id, name, claims, class_word, attempt, own)
  put_into_later(name, class_word, attempt, first_at, own, now + moved / 1000) -- in their order
  leave_stream(id)
  keep(kept, ms_of(id))
  moved = moved + 1
end

-- False when the call has done enough.
local function move_all(class, kept)
  while moved < most and bytes < max_bytes do
    local message = call('XRANGE', stream, BEYOND, '+', 'COUNT', 1)[1]
    if not message then return true end
    bytes = bytes + size_and_name(message[1], message[2], '')
    move(class, message[1], message[2], kept)
  end
  return false
end

-- The present is not less than the greatest id in the stream.
local function set_to_present(kept, read)
  local present = PRESENT
  if redis.pcall('XSETID', stream, present, 'MAXDELETEDID', present).err then
    present = call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1][1]
    call('XSETID', stream, present, 'MAXDELETEDID', present)
    keep(kept, ms_of(present))
  end
  if read and newer(read, present) then call('XGROUP', 'SETID', stream, 'sluice', present) end
  set_back = set_back + 1
end

local function mend(class)
  local kept, before = kept_times(class)
  if more == 0 and is_ahead(stream, now + AHEAD_MS) then
    local lacking, read = lacks_right('mend'), read_until(stream)
    if lacking then return lacking end
    keep(kept, ms_of(read)) -- of what was read there and has ended, nothing is left to move
    if move_all(class, kept) then
      set_to_present(kept, read)
    else
      more = 1
    end
  end
  if next(kept) then go_over(kept) end
  write_kept(class, kept, before)
end

for class = 1, 3 do
  stream = KEYS[4 + class]
  if unless_wrong(redis.pcall('XLEN', stream)) then
    local lacking = mend(class)
    if lacking then return lacking end
  end
end
return {moved, set_back, more}
