#!lua flags=allow-oom
-- Ends requests: writes each reply and takes its entry out of the stream, in one step.
--
-- KEYS  1 stream, 2 trouble, 3 dead, 4 meta, then the reply key of each entry, then for each entry its wake key or its
--       results:<name> if it notifies, its stage key if its reply is staged, and its stream of tokens and the record of the
--       tokens sent if it has one
-- ARGV  1 consumer, 2 the members of `info` that all results share, each after a comma, 3 number of entries, 4 the lowest and
--       5 the highest of their ids, 6 how many of their vectors go into another hash, too, for each of these: number of the
--       entry from 1 on, key, field. The key is none of KEYS: where the worker has no right to it, Redis would refuse the whole
--       call. Then the number of plain entries, which come first, the lowest id first; the ttl in ms and the field of the result
--       that all of them share; the number of runs with which they begin, and how many of them are in each. A plain entry is
--       `done`, notifies nobody, goes into no other hash, and its reply key and its first submission are its own id's, of 13
--       digits. A run is all that one XREADGROUP found in the stream from the run's first to its last entry. For each plain one:
--         entry id, unix ms of the first submission plus ms since the compute began, the other members of its `info`, the result
--         ('' if it is staged, see below)
--       Then for each of the others:
--         entry id, kind, original name, ttl in ms,
--         notify (0 nobody, 1 a wake token, s an entry on a results stream), claims (1: the name comes from `_id`),
--         tokens (those of the text, all of which must be on the record; - whatever is there; '' no stream of tokens),
--         unix ms of the first submission (0: the name's), ms since the compute began, the other members of its `info`, each
--         after a comma, n, and n strings: field, value, ... (the result, or code and message)
--         n is 0 if the result is staged: the caller has written it to a hash, beside the status, in the same transaction, and
--         deletes it there after this call if it has not become the reply. A large vector bypasses the script, because Lua
--         hashes every byte of an argument
--       kind  done   a vector, from any worker that has one: it is the same vector. Of a text that goes to a stream of tokens,
--                    only the owner's
--             error  refused before it started, by any holder
--             fail   failed after the start: only the entry's owner may say so
--             dead   like fail, and a dead letter is kept
--             gone   the message is no longer in the stream (XDEL by hand); any worker that finds that may say so
-- Returns one number for each entry, then two counts.
--        1  settled
--        2  acknowledged, but the reply of a newer entry with the same id stands
--        0  late: no longer pending, because another worker was first or the group is a new one; or the id is ahead of the
--           clock and another consumer owns it
--       -1  not allowed: another consumer owns it (fail, dead, a stream of tokens), or the message is there after all (gone)
--           With 0 and -1 nothing was changed, except that a run alone of the caller is taken off the record, because it
--           crashed no worker
--       -3  the name is not this entry's (a producer wrote the `_id`); nothing was changed
--       -9  not all of its tokens are on the record; nothing was changed
--       side keys skipped for their type; dead letters trimmed
-- May not: touch anything before the gate (is this id pending?) has been read, remove anything before all else is written, or
-- fail because of a side key. Scripts do not roll back, so an error in the middle must leave the entries pending; then the call
-- is repeated. XDEL comes before XACK for the same reason: the gate asks for "pending".

local DEAD_MAX, DEAD_DAYS, DEAD_BYTES, TRIM_MOST = 100000, 30, 268435456, 512
local BODY_MAX = 256 -- strings of a dead letter's body that are fields of their own: unpack has a limit, and this is far below
local BODY_BYTES, SHORT = 65536, 256 -- the most bytes of a body; of a string in it that is kept whole
local RESULTS_LENGTH, DAY_MS, WAKES = 100000, 86400000, 16

-- include lib/call.lua

local stream, trouble, dead, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local consumer, of_model, count = ARGV[1], ARGV[2], tonumber(ARGV[3])
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local done_at = string.format('%.0f', now) -- Redis formats a number anew in each command, and slowly
local skipped, trimmed = 0, 0

-- include lib/names.lua
-- include lib/trouble.lua
-- include lib/ahead.lua

-- Returns the answer of a side key, nil if the key cannot be used: it has a wrong type, or is a stream without ids left.
local function side(result)
  if type(result) ~= 'table' or not result.err then return result end
  skipped = skipped + 1
  return nil
end

-- include lib/tokens.lua

local PREFIX = prefix_of(stream)

-- Returns whether a name from `_id` is this entry's. If `trouble` cannot be read, the name is believed.
local function carries(id, name)
  local known = known_of(name)
  if known == nil then skipped = skipped + 1 end
  return known == nil or is_carrier(id, known, name, PREFIX)
end

-- Cuts a body down: short strings stay whole, long ones keep their beginning.
local function cut(body)
  local left = BODY_BYTES
  for _, text in ipairs(body) do
    if #text <= SHORT then left = left - #text end
  end
  for i, text in ipairs(body) do
    if #text > SHORT then
      body[i] = string.sub(text, 1, math.max(left, 0))
      left = left - #body[i]
    end
  end
end

-- Returns the request's own fields; only the beginning of a long body, with the mark `_cut`, which says how many bytes it had.
local function body_of(id)
  local message = call('XRANGE', stream, id, id)[1]
  local body, bytes = {}, 0
  for i = 1, message and #message[2] or 0, 2 do
    if string.sub(message[2][i], 1, 1) ~= '_' then
      body[#body + 1] = message[2][i]
      body[#body + 1] = message[2][i + 1]
      bytes = bytes + #message[2][i] + #message[2][i + 1]
    end
  end
  if bytes > BODY_BYTES then cut(body) end
  if #body > BODY_MAX then body = {'_body', cmsgpack.pack(body)} end
  if bytes > BODY_BYTES then
    body[#body + 1] = '_cut'
    body[#body + 1] = tostring(bytes)
  end
  return body
end

-- Returns where a letter begins and ends if all letters follow each other without gaps: the first and the last of them show how
-- many bytes are kept, whichever letters between them were deleted.
local function place_of(message)
  local first, bytes = 0, 0
  for i, text in ipairs(message and message[2] or {}) do
    bytes = bytes + #text
    if i % 2 == 0 and message[2][i - 1] == '_offset' then first = tonumber(text) or 0 end
  end
  return first, first + bytes
end

-- The first letters, while all together are more than DEAD_BYTES. The shortest ones that there are free as much as the longest
-- one takes.
local function trim_bytes(last)
  for _ = 1, TRIM_MOST do
    if last - place_of(call('XRANGE', dead, '-', '+', 'COUNT', 1)[1]) <= DEAD_BYTES then return end
    trimmed = trimmed + call('XTRIM', dead, 'MAXLEN', call('XLEN', dead) - 1)
  end
end

-- Keeps a dead letter and returns its id: what the reply says, each field with `_` before it, then the request's own fields.
local function bury(id, name, info, first, last)
  local letter = {'_entry', name, '_info', '{' .. string.sub(info, 2) .. '}'}
  for i = first, last, 2 do
    letter[#letter + 1] = '_' .. ARGV[i]
    letter[#letter + 1] = ARGV[i + 1]
  end
  for _, text in ipairs(body_of(id)) do letter[#letter + 1] = text end
  local newest = try('XREVRANGE', dead, '+', '-', 'COUNT', 1)
  if newest.err and not string.find(newest.err, '^WRONGTYPE') then error(newest) end
  local _, offset = place_of(newest[1])
  if offset > 0 then
    letter[#letter + 1] = '_offset'
    letter[#letter + 1] = string.format('%.0f', offset)
  end
  local letter_id = side(try('XADD', dead, '*', unpack(letter)))
  if letter_id then
    trimmed = trimmed + (side(try('XTRIM', dead, 'MAXLEN', '~', DEAD_MAX)) or 0)
    trimmed = trimmed + (side(try('XTRIM', dead, 'MINID', '~', now - DEAD_DAYS * DAY_MS)) or 0)
    trim_bytes(select(2, place_of({letter_id, letter})))
  end
  return letter_id
end

local function id_of(reply)
  return string.match(reply, ':reply:(.*)$')
end

-- Writes the vector of a result into the hash that ARGV[at] names. If that fails, returns why, for its `info`.
local function write_into(at, vector)
  local written = redis.pcall('HSET', ARGV[at], ARGV[at + 1], vector)
  if type(written) ~= 'table' or not written.err then return '' end
  return ',"into_error":' .. cjson.encode((string.gsub(written.err, '[\128-\255]', '?')))
end

-- Returns `info`, which begins with what info_owner (lib/names) reads again.
local function write_reply(fresh, stage, key, kind, id, name, ttl, since, info, first, last, seen, into)
  if stage then call('RENAME', stage, key) end
  local head = '{"entry":"' .. name .. (seen and '","first_at":' .. seen .. ',"done_at":' or '","done_at":') .. done_at
  if kind == 'done' then
    local queued = now - since
    queued = queued > 0 and string.format('%d', queued) or '0'
    local failed = into and write_into(into, stage and call('HGET', key, 'embedding') or ARGV[first + 1]) or ''
    info = head .. ',"queued_ms":' .. queued .. info .. of_model .. failed .. '}'
  else
    local buried = kind == 'dead' and bury(id, name, info, first, last)
    info = head .. info .. (buried and ',"dead":"' .. buried .. '"}' or '}')
  end
  if stage then
    call('HSET', key, 'info', info)
  else
    if not fresh then call('DEL', key) end
    call('HSET', key, 'status', kind == 'done' and kind or 'error', 'info', info, unpack(ARGV, first, last))
  end
  call('PEXPIRE', key, ttl)
  return info
end

-- Takes the names of finished entries off the record, except a name that another entry carries.
local function forget(ids, names)
  local known, ended = side(try('HMGET', trouble, unpack(names))), {}
  for i, name in ipairs(names) do
    local carrier = known and known[i] and string.match(known[i], '^%d+ %d+ (%S+)')
    if known and known[i] and (not carrier or carrier == ids[i]) then ended[#ended + 1] = name end
  end
  if #ended > 0 then side(try('HDEL', trouble, unpack(ended))) end
end

-- Usually all entries are pending with the caller, and few others are between them: one look at all saves one at each.
local pending = call('XPENDING', stream, 'sluice', ARGV[4], ARGV[5], 2 * count, consumer)
local ours = {}

-- Returns the code that says why this entry may not be settled, nil if it may.
local function refusal(id, kind, name, claims, streams)
  local mine = ours[id]
  if not mine then
    local held = call('XPENDING', stream, 'sluice', id, id, '1')[1]
    if not held then
      uncharge(id, name, consumer)
      return 0
    end
    mine = held[2] == consumer
  end
  -- Ahead of the clock it may be another entry: lua/mend moves those, and then a producer may use their ids again.
  if not mine and kind ~= 'gone' and is_beyond(id) then return 0 end
  if claims and not carries(id, name) then return -3 end
  if (kind == 'fail' or kind == 'dead' or kind == 'done' and streams) and not mine then
    uncharge(id, name, consumer)
    return -1
  end
  if kind == 'gone' and call('XRANGE', stream, id, id)[1] then return -1 end
end

-- Returns whether a record cannot be used, or has so many tokens.
local function has_sent(record, tokens)
  local sent = side(try('STRLEN', record))
  return not sent or sent == 4 * tokens
end

local results, finished, names, wakes, tellings, ends = {}, {}, {}, {}, {}, {}
local argument, extra, into = 7 + 3 * ARGV[6], 4 + count, {}
for at = 7, argument - 1, 3 do into[tonumber(ARGV[at])] = at + 1 end
local plain, plain_ttl, plain_field, runs = tonumber(ARGV[argument]), ARGV[argument + 1], ARGV[argument + 2], argument + 3
argument = runs + 1 + ARGV[runs]

-- Usually none of the replies exists: one check of all of them saves a check and a DEL for each.
local none_there, written = call('EXISTS', unpack(KEYS, 5, 4 + count)) == 0, {}

-- Nothing but a reply of this request, or a key of a wrong type, can have the name of a plain one's reply, so it is replaced.
-- `pending` is in the order of ids, too, so one walk along it finds them.
local at, all_found = 1, true
for entry = 1, plain do
  local id, result, refused = ARGV[argument], ARGV[argument + 3], nil
  if result == '' then extra = extra + 1 end
  while pending[at] and pending[at][1] ~= id do at = at + 1 end
  if not pending[at] then
    refused, all_found = refusal(id, 'done', PREFIX .. id, false), false
  end
  if not refused then
    local reply, queued = KEYS[4 + entry], now - ARGV[argument + 1]
    local info = '{"entry":"' .. PREFIX .. id .. '","done_at":' .. done_at .. ',"queued_ms":' ..
      (queued > 0 and string.format('%d', queued) or '0') .. ARGV[argument + 2] .. of_model .. '}'
    if result == '' then
      call('RENAME', KEYS[extra], reply)
      call('HSET', reply, 'info', info)
    else
      if not none_there then call('DEL', reply) end
      call('HSET', reply, 'status', 'done', plain_field, result, 'info', info)
    end
    call('PEXPIRE', reply, plain_ttl)
    finished[#finished + 1] = id
  end
  results[entry] = refused or 1
  argument = argument + 4
end

if plain < count then
  for _, held in ipairs(pending) do ours[held[1]] = true end
end
for entry = plain + 1, count do
  local id, kind, name, ttl = ARGV[argument], ARGV[argument + 1], ARGV[argument + 2], ARGV[argument + 3]
  local notify, tokens, info, first = ARGV[argument + 4], ARGV[argument + 6], ARGV[argument + 9], argument + 11
  local last = argument + 10 + ARGV[argument + 10]
  local reply, other, stage, streams = KEYS[4 + entry], nil, nil, nil
  if notify ~= '0' then
    extra = extra + 1
    other = KEYS[extra]
  end
  if last < first then
    extra = extra + 1
    stage = KEYS[extra]
  end
  if tokens ~= '' then
    streams = extra + 1
    extra = extra + 2
  end
  local result = refusal(id, kind, name, ARGV[argument + 5] == '1', streams)
  if not result and streams and tokens ~= '-' and not has_sent(KEYS[streams + 1], tokens) then result = -9 end
  if not result then
    local fresh = none_there and not written[reply]
    local before = not fresh and try('HGET', reply, 'info')
    written[reply] = true
    local owner, first_at = nil, nil -- the name in the reply that is there
    if type(before) == 'table' then
      if not string.find(before.err, '^WRONGTYPE') then return before end
    elseif before then
      owner, first_at = info_owner(before)
    end
    local seen = seen_at(name, ARGV[argument + 7])
    if owner and newer(owner, name, seen_at(owner, first_at), seen) then
      result, info = 2, '{"entry":"' .. name .. '"' .. info .. '}'
    else
      result = 1
      if kind ~= 'gone' or owner ~= name then -- a gone message whose reply is there was finished: the reply stays
        info = write_reply(fresh, stage, reply, kind, id, name, ttl, ARGV[argument + 7] + ARGV[argument + 8], info, first, last,
          seen, into[entry])
      else
        streams = nil -- its end was sent, too
      end
    end
  end
  if result > 0 then
    finished[#finished + 1], names[#names + 1] = id, name
    if notify == '1' then wakes[#wakes + 1] = {other, name, ttl} end
    local status = kind == 'done' and kind or 'error'
    if notify == 's' then tellings[#tellings + 1] = {other, id_of(reply), status, name} end
    if streams then
      ends[#ends + 1] = {KEYS[streams], KEYS[streams + 1], ttl, {'entry', name, 'id', id_of(reply), 'status', status, 'info', info}}
      for i = first, kind == 'done' and first - 1 or last do table.insert(ends[#ends][4], ARGV[i]) end
    end
  end
  results[entry] = result
  argument = last + 1
end

for _, wake in ipairs(wakes) do
  local tokens = side(try('RPUSH', wake[1], wake[2]))
  if tokens and tokens > WAKES then side(try('LTRIM', wake[1], -WAKES, -1)) end -- they are not fetched
  if tokens then side(try('PEXPIRE', wake[1], wake[3])) end
end
local told = {}
for _, telling in ipairs(tellings) do
  local added = side(try('XADD', telling[1], 'MAXLEN', '~', RESULTS_LENGTH, '*', 'id', telling[2], 'status', telling[3],
    'entry', telling[4]))
  if added then told[telling[1]] = true end
end
for results_stream in pairs(told) do side(try('PEXPIRE', results_stream, DAY_MS)) end
for _, text in ipairs(ends) do
  add_tokens(text[1], unpack(text[4]))
  keep_tokens(text[1], text[3])
end

-- Removes the runs from the beginning of the stream, one after the other, as long as each begins it. Returns how many finished
-- entries were in them. XDEL looks for each entry from the beginning of its node, XTRIM drops whole nodes. It drops all that is
-- before an id, so nothing but the run may be there: Redis puts no entry between two others, and nothing is before the first.
-- XPENDING is asked first because it shows no fields, which may be large.
local function trim_runs()
  local removed, from = 0, '-'
  for run = 1, ARGV[runs] do
    local before = '(' .. finished[removed + 1]
    if call('XPENDING', stream, 'sluice', from, before, 1)[1] or call('XRANGE', stream, '-', before, 'COUNT', 1)[1] then break end
    removed = removed + ARGV[runs + run]
    local last = finished[removed]
    call('XTRIM', stream, 'MINID', last)
    call('XDEL', stream, last)
    from = '(' .. last
  end
  return removed
end

if #finished > 0 then
  local beyond, removed = is_beyond(ARGV[5]), 0
  if beyond then keep_account(stream, finished) end
  if all_found and not beyond then removed = trim_runs() end
  if removed < #finished then call('XDEL', stream, unpack(finished, removed + 1)) end
  call('XACK', stream, 'sluice', unpack(finished))
  -- A worker that finishes an entry may not know that others had suspected it, so all names are forgotten, if any is on record.
  -- Not before the entries are gone: a repeated call would no longer know that a name is theirs.
  if call('EXISTS', trouble) == 1 then
    for i = #finished - #names, 1, -1 do table.insert(names, 1, PREFIX .. finished[i]) end -- the plain ones
    forget(finished, names)
  end
  for _, text in ipairs(ends) do side(try('DEL', text[2])) end -- not before: a repeated call looks at the record
end
results[#results + 1] = skipped
results[#results + 1] = trimmed
return results
