#!lua flags=allow-oom
-- Ends requests: writes each reply and takes its entry out of the stream, in one step.
--
-- KEYS  1 stream, 2 trouble, 3 dead, then for each entry its reply key and, if it wants a wake token, its wake key
-- ARGV  1 consumer, 2 model, 3 revision, then for each entry:
--         entry id, kind, original name, ttl in ms, wake (0 or 1),
--         unix ms of the first submission, ms since the compute began, n, and n strings: field, value, ...
--       kind  done   a vector, from whoever has one: it is the same vector
--             error  refused before it started, by any holder
--             fail   failed after the start: only the entry's owner may say so
--             dead   like fail, and a dead letter is kept; the body of a poison entry is not touched
--             gone   the message is no longer in the stream (XDEL by hand); whoever finds that says so
-- Returns one number for each entry, then two counts.
--        1  settled
--        2  acknowledged, but the reply of a newer entry with the same id stands
--        0  late: no longer pending, somebody else was first; nothing was changed
--       -1  not allowed: another consumer owns it (fail, dead), or the message is there after all (gone)
--       side keys skipped for their type; dead letters trimmed
-- May not: touch anything before the gate (is this id pending?) has been read, remove anything before all else is
-- written, or fail because of a side key. Scripts do not roll back, so an error in the middle must leave the entries
-- pending; then the call is repeated. XDEL comes before XACK for the same reason: "pending" is what the gate asks.

local DEAD_MAX, DEAD_DAYS = 100000, 30
local BODY_MAX = 256 -- strings of a dead letter's body: unpack has a limit, and this stays far below it

local call, pcall = redis.call, redis.pcall
local stream, trouble, dead = KEYS[1], KEYS[2], KEYS[3]
local consumer, model, revision = ARGV[1], ARGV[2], ARGV[3]
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local skipped, trimmed = 0, 0

local CLASS = {['high:'] = 0, [''] = 1, ['low:'] = 2}

-- Numbers as decimal text without leading zeros: a sequence number may not fit into a double.
local function compare(a, b)
  if #a ~= #b then return #a - #b end
  return a == b and 0 or (a < b and -1 or 1)
end

-- Is the entry with this name younger than that one? By original time, sequence, then class.
local function newer(name, than)
  if name == than then return false end
  local class_a, ms_a, seq_a = string.match(name, '^(%l*:?)(%d+)%-(%d+)$')
  local class_b, ms_b, seq_b = string.match(than, '^(%l*:?)(%d+)%-(%d+)$')
  if not ms_a or not ms_b then return false end
  local order = compare(ms_a, ms_b)
  if order == 0 then order = compare(seq_a, seq_b) end
  if order == 0 then order = (CLASS[class_a] or 1) - (CLASS[class_b] or 1) end
  return order > 0
end

local function side(result)
  if type(result) == 'table' and result.err then
    skipped = skipped + 1
    return nil
  end
  return result
end

-- Keeps a dead letter and returns its id: what the reply says, each field with `_` before it, then the request's own fields.
local function bury(id, name, first, last)
  local letter, poison = {'_entry', name}, false
  for i = first, last, 2 do
    letter[#letter + 1] = '_' .. ARGV[i]
    letter[#letter + 1] = ARGV[i + 1]
    poison = poison or (ARGV[i] == 'code' and ARGV[i + 1] == 'poison')
  end
  if not poison then
    local message = call('XRANGE', stream, id, id)[1]
    local body = message and message[2] or {}
    if #body <= BODY_MAX then
      for i = 1, #body, 2 do
        if string.sub(body[i], 1, 1) ~= '_' then
          letter[#letter + 1] = body[i]
          letter[#letter + 1] = body[i + 1]
        end
      end
    end
  end
  local letter_id = side(pcall('XADD', dead, '*', unpack(letter)))
  if letter_id then
    trimmed = trimmed + (side(pcall('XTRIM', dead, 'MAXLEN', '~', DEAD_MAX)) or 0)
    trimmed = trimmed + (side(pcall('XTRIM', dead, 'MINID', '~', now - DEAD_DAYS * 86400000)) or 0)
  end
  return letter_id
end

local function write_reply(fresh, key, kind, id, name, ttl, since, first, last)
  local buried = kind == 'dead' and bury(id, name, first, last)
  if not fresh then call('DEL', key) end
  if kind == 'done' then
    local queued = now - math.floor(since)
    call('HSET', key, 'status', 'done', 'entry', name, 'model', model, 'revision', revision,
      'done_at', now, 'queued_ms', queued > 0 and queued or 0, unpack(ARGV, first, last))
  else
    call('HSET', key, 'status', 'error', 'entry', name, 'done_at', now, unpack(ARGV, first, last))
    if buried then call('HSET', key, 'dead', buried) end
  end
  call('PEXPIRE', key, ttl)
end

-- Mostly none of the keys to be written is there: one look at all of them saves a look and a DEL for each.
local none_there, written = call('EXISTS', unpack(KEYS, 4)) == 0, {}

local results, finished, names, wakes = {}, {}, {}, {}
local argument, key = 4, 4
while argument <= #ARGV do
  local id, kind, name, ttl = ARGV[argument], ARGV[argument + 1], ARGV[argument + 2], ARGV[argument + 3]
  local wake, first = ARGV[argument + 4] == '1', argument + 8
  local last = argument + 7 + ARGV[argument + 7]
  local reply, result = KEYS[key], 1
  local pending = call('XPENDING', stream, 'sluice', id, id, 1)[1]
  if not pending then
    result = 0
  elseif (kind == 'fail' or kind == 'dead') and pending[2] ~= consumer then
    result = -1
  elseif kind == 'gone' and call('XRANGE', stream, id, id)[1] then
    result = -1
  else
    local fresh = none_there and not written[reply]
    local before = not fresh and pcall('HGET', reply, 'entry')
    written[reply] = true
    if type(before) == 'table' and not string.find(before.err, '^WRONGTYPE') then return before end
    if type(before) == 'string' and newer(before, name) then
      result = 2
    elseif kind ~= 'gone' or before ~= name then -- a gone message whose reply is there was finished: let it stand
      write_reply(fresh, reply, kind, id, name, ttl, ARGV[argument + 5] + ARGV[argument + 6], first, last)
    end
    finished[#finished + 1], names[#names + 1] = id, name
    if wake then wakes[#wakes + 1] = {KEYS[key + 1], name, ttl} end
  end
  results[#results + 1] = result
  key = key + (wake and 2 or 1)
  argument = last + 1
end

for _, wake in ipairs(wakes) do
  if side(pcall('RPUSH', wake[1], wake[2])) then pcall('PEXPIRE', wake[1], wake[3]) end
end
if #finished > 0 then
  -- Who finishes an entry need not know that others had suspected it, so all names are forgotten, if any is on record.
  if call('EXISTS', trouble) == 1 then side(pcall('HDEL', trouble, unpack(names))) end
  call('XDEL', stream, unpack(finished))
  call('XACK', stream, 'sluice', unpack(finished))
end
results[#results + 1] = skipped
results[#results + 1] = trimmed
return results
