#!lua flags=allow-oom
-- Cancels a request by its name, wherever it is (in its stream, read or unread, or parked), and ends the entry that asked for it.
--
-- KEYS  1 stream of the cancel entry, a class's or `control`, 2 trouble, 3 later, 4 later:data, 5 meta, 6 stream of the target,
--       7 reply:<id> of the target, 8 its wake:<id> or its results:<name>, 9 its stream of tokens, 10 the record of its tokens
-- ARGV  1 consumer, 2 id of the cancel entry, 3 name of the target, 4 <id> as it is in KEYS 7, 5 ttl in ms of the reply
--       unless the target says another, 6 what KEYS 8 is for: 0 nothing, 1 a wake token, s the results stream,
--       7 its <name>, '' for none, 8 the <name> of KEYS 9, '' for none
-- Returns { code, ... }
--       { 1 }   cancelled: the reply says so, and a worker that computes it now finds the gate closed
--       { 0 }   nothing to cancel: finished, unknown, not a request, or not the one that is meant; the cancel entry is removed
--               all the same
--       { 2 }   late: the cancel entry is no longer pending, or gone from `control`; nothing was changed
--       { -5, id, notify, results name, name of the stream of tokens }  the target has other keys: call again with these;
--               nothing was changed
-- The first call guesses: <id> = the target's name, notify 0, no stream of tokens.
-- May not: write before the gate (is the cancel entry pending?), or remove before the reply is written; end an entry that is
-- not a request under its own name (a retry's new entry id is not a name; a cancel entry has no reply); report "nothing" when
-- it could not look everywhere (later:data or trouble of a wrong type: the cancel stays pending).

-- include lib/call.lua

local stream, trouble, later, data, meta, home, reply, other, tokens, record = unpack(KEYS)
local cancel_id, name, given_id, default_ttl = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local TTL_MAX_S, RESULTS_LENGTH, DAY_MS, WAKES = 604800, 100000, 86400000, 16
local rep, HEX = string.rep, '[%da-f]'
local PARENT = '^(' .. rep(HEX, 2) .. ')%-(' .. rep(HEX, 32) .. ')%-(' .. rep(HEX, 16) .. ')%-' .. rep(HEX, 2) .. '([!-~]*)$'
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local done_at = string.format('%.0f', now)

-- include lib/names.lua
-- include lib/trouble.lua
-- include lib/ahead.lua

-- Returns the answer of a side key, nil if the key cannot be used: it has a wrong type, or is a stream without ids left.
local function side(result)
  if type(result) == 'table' and result.err then return nil end
  return result
end

-- include lib/tokens.lua

local function carrier_of(known)
  return known and string.match(known, '^%d+ %d+ (%S+)')
end

local function to_map(fields)
  local map = {}
  for i = 1, #fields, 2 do map[fields[i]] = map[fields[i]] or fields[i + 1] end -- the first one counts, as for the worker
  return map
end

local function parked_fields(packed)
  local ok, parked = pcall(cmsgpack.unpack, packed)
  if not ok or type(parked) ~= 'table' or type(parked[4]) ~= 'table' then return {}, nil, nil end
  return to_map(parked[4]), nil, parked[3]
end

-- Returns the fields of the request with this name, the entry that carries it (nil: it is parked), and when it was first seen,
-- if that is known. It looks last at the entry with this id: the name may be that of a request which was parked under it.
local function find()
  local own = string.match(name, '(%d+%-%d+)$')
  if not own then return nil end
  local packed, known = side(try('HGET', data, name)), side(try('HGET', trouble, name))
  if packed then return parked_fields(packed) end
  local carrier = carrier_of(known)
  local message = carrier and carrier ~= own and call('XRANGE', home, carrier, carrier)[1]
  local fields = message and to_map(message[2]) or {}
  if fields._id == name then return fields, carrier, fields._first_at end
  message = call('XRANGE', home, own, own)[1]
  if message then
    fields = to_map(message[2])
    local lent = fields._id and carrier_of(side(try('HGET', trouble, fields._id))) == own
    if not lent then return fields, own, tonumber(string.match(own, '^%d+')) > now + AHEAD_MS and '1' or nil end
  end
  if packed == nil then call('HGET', data, name) end -- could not look there
  if known == nil then call('HGET', trouble, name) end
end

-- Returns the reply id, the kind of notice, the results stream and the stream of tokens that the target asks for; if the request
-- has an error there, it is answered under its name, without a notice.
local function wishes(target)
  local id, notify, results = target.id, '0', ''
  local prefix, ms = string.match(id or '', '^(%l*:?)(%d+)%-%d+$') -- the form of a name
  if not id or #id > 128 or CLASS[prefix] and #ms > 12 or not string.find(id, '^[ -~]+$') then id = name end
  local wanted = string.match(target.notify or '', '^stream:([%l%d_.%-]+)$')
  if target.notify == '1' then notify = '1' end
  if wanted and #wanted <= 64 then notify, results = 's', wanted end
  local text = string.match(target.stream or '', '^[%l%d_.%-]+$') or ''
  return id, notify, results, #text <= 64 and text or ''
end

-- As in src/schedule/fields.c, from W3C Trace Context.
local function is_traceparent(text)
  local version, trace, span, rest = string.match(text, PARENT)
  if not version or version == 'ff' or not string.find(trace, '[^0]') or not string.find(span, '[^0]') then return false end
  return rest == '' or version ~= '00' and string.sub(rest, 1, 1) == '-'
end

local function is_tracestate(text)
  local members = 0
  for member in string.gmatch(text .. ',', '([^,]*),') do
    member = string.match(member, '^[ \t]*(.-)[ \t]*$')
    local key = string.match(member, '^([%l%d][%l%d_%-*/@]*)=[ -<>-~]+$')
    if member ~= '' and (not key or #key > 256) then return false end
    members = members + 1
  end
  return members <= 32
end

local function is_utf8(text)
  local tail = '[\128-\191]'
  for _, character in ipairs({'\240[\144-\191]' .. rep(tail, 2), '[\241-\243]' .. rep(tail, 3), '\244[\128-\143]' .. rep(tail, 2),
    '\224[\160-\191]' .. tail, '\237[\128-\159]' .. tail, '[\225-\236\238\239]' .. rep(tail, 2), '[\194-\223]' .. tail}) do
    text = string.gsub(text, character, ' ')
  end
  return not string.find(text, '[\128-\255]')
end

-- The fields that the reply echoes, each with its largest size in bytes; the last means nothing without the one before it.
local ECHOES = {{'meta', 4096, is_utf8}, {'tenant', 64, function(text) return string.find(text, '^[%w._:%-]+$') end},
                {'traceparent', 256, is_traceparent}, {'tracestate', 512, is_tracestate}}

-- Returns `info` and the ttl.
local function write_reply(target, seen)
  local before = try('HGET', reply, 'info')
  if type(before) == 'table' and not string.find(before.err, '^WRONGTYPE') then error(before) end
  local owner, first_at = info_owner(type(before) == 'string' and before or '')
  if owner and newer(owner, name, seen_at(owner, first_at), seen) then return '{"entry":"' .. name .. '"}', default_ttl end
  local seconds = string.match(target.ttl or '', '^%d+$') and tonumber(target.ttl) or 0
  local ttl = seconds >= 1 and seconds <= TTL_MAX_S and seconds * 1000 or default_ttl
  local info = '{"entry":"' .. name .. (seen and '","first_at":' .. seen .. ',"done_at":' or '","done_at":') .. done_at
  if given_id ~= name then info = info .. ',"id":' .. cjson.encode(given_id) end
  local kept = {}
  for _, echo in ipairs(ECHOES) do
    local field, most, is_good = unpack(echo)
    local value = target[field]
    kept[field] = value and #value >= 1 and #value <= most and is_good(value)
    if kept[field] and (field ~= 'tracestate' or kept.traceparent) then
      info = info .. ',"' .. field .. '":' .. cjson.encode(value)
    end
  end
  info = info .. '}'
  call('DEL', reply)
  call('HSET', reply, 'status', 'cancelled', 'info', info)
  call('PEXPIRE', reply, ttl)
  return info, ttl
end

local function tell(notify, ttl)
  if notify == '1' then
    local tokens = side(try('RPUSH', other, name))
    if tokens and tokens > WAKES then side(try('LTRIM', other, -WAKES, -1)) end
    if tokens then side(try('PEXPIRE', other, ttl)) end
  elseif notify == 's' then
    local added = side(try('XADD', other, 'MAXLEN', '~', RESULTS_LENGTH, '*', 'id', given_id, 'status', 'cancelled',
      'entry', name))
    if added then side(try('PEXPIRE', other, DAY_MS)) end
  end
end

-- The name under which `trouble` knows the cancel itself: it was taken over from a dead worker, or parked (lua/mend).
local function own_record()
  local message = call('XRANGE', stream, cancel_id, cancel_id)[1]
  for _, called in ipairs({message and to_map(message[2])._id or '', prefix_of(stream) .. cancel_id}) do
    if carrier_of(side(try('HGET', trouble, called))) == cancel_id then return called end
  end
end

-- The control stream has no group: its entry is open while it is in the stream.
local control = string.find(stream, ':control$')
local function is_open()
  if control then return call('XRANGE', stream, cancel_id, cancel_id)[1] end
  return call('XPENDING', stream, 'sluice', cancel_id, cancel_id, 1)[1]
end

local order = is_open()
if not order then return {2} end
local meant = control and to_map(order[2]) or {}

-- An order in `control` may say whose request it means.
local function is_meant(target)
  return (not meant.id or meant.id == target.id) and (not meant.tenant or meant.tenant == target.tenant)
end

local target, carrier, first = find()
local code = 0
if target and not target.cancel and is_meant(target) then
  local id, notify, results, text = wishes(target)
  if id ~= given_id or notify ~= ARGV[6] or results ~= ARGV[7] or text ~= ARGV[8] then return {-5, id, notify, results, text} end
  local info, ttl = write_reply(target, seen_at(name, first))
  tell(notify, ttl)
  if text ~= '' then
    add_tokens(tokens, 'entry', name, 'id', id, 'status', 'cancelled', 'info', info)
    keep_tokens(tokens, ttl)
  end
  if carrier then
    keep_account(home, {carrier})
    call('XDEL', home, carrier)
    call('XACK', home, 'sluice', carrier)
  end
  if text ~= '' then side(try('DEL', record)) end
  side(try('ZREM', later, name))
  side(try('HDEL', data, name))
  code = 1
end
local troubled = call('EXISTS', trouble) == 1
local forgotten = {troubled and not control and own_record() or nil}
if not control then keep_account(stream, {cancel_id}) end
call('XDEL', stream, cancel_id)
if not control then
  call('XACK', stream, 'sluice', cancel_id)
elseif call('XLEN', stream) == 0 then
  call('DEL', stream)
end
if code == 1 then forgotten[#forgotten + 1] = name end
if forgotten[1] and troubled then side(try('HDEL', trouble, unpack(forgotten))) end
return {code}
