-- Keeps account of ids that were given out ahead of their time, so that `*` does not give them out again when it comes. When an
-- entry leaves a stream while its id is ahead, `meta` keeps its ms in `ahead_high`, `ahead_normal` or `ahead_low`, a text
-- `ms ms ...`. lua/mend makes the stream jump over them. The script has locals `meta` and `now`, and the pieces call, names and
-- trouble.

local KEPT_MS, KEPT_MOST = 366 * 86400000, 64
local AHEAD = string.format('%.0f', now + AHEAD_MS)

-- Returns whether a stream that is set back now will come to this id. For most ids one comparison of texts of equal length is
-- enough.
local function is_beyond(id)
  if string.byte(id, 14) == 45 and id < AHEAD then return false end
  return tonumber(string.match(id, '^%d+')) >= now + AHEAD_MS
end

local function account_of(stream)
  return 'ahead_' .. (string.match(stream, ':requests:(%l+)$') or 'normal')
end

-- Returns the ms of a class as a set, and the text that they were read from.
local function kept_of(stream)
  local kept, text = {}, unless_wrong(try('HGET', meta, account_of(stream)))
  for ms in string.gmatch(text or '', '%d+') do kept[tonumber(ms)] = true end
  return kept, text
end

local function keep(kept, id)
  local ms = tonumber(string.match(id, '^%d+'))
  if ms <= now + KEPT_MS then kept[ms] = true end
end

local function write_kept(stream, kept, before)
  local times, words = {}, {}
  for ms in pairs(kept) do times[#times + 1] = ms end
  table.sort(times)
  for i = 1, math.min(#times, KEPT_MOST) do words[i] = string.format('%.0f', times[i]) end
  local text = table.concat(words, ' ')
  if text == (before or '') then return end
  if text == '' then
    unless_wrong(try('HDEL', meta, account_of(stream)))
  else
    unless_wrong(try('HSET', meta, account_of(stream), text))
  end
end

-- Must be called before these entries are removed.
local function keep_account(stream, ids)
  local kept, before = nil, nil
  for _, id in ipairs(ids) do
    if is_beyond(id) then
      if not kept then kept, before = kept_of(stream) end
      keep(kept, id)
    end
  end
  if kept then write_kept(stream, kept, before) end
end
