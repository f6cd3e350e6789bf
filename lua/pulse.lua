#!lua flags=allow-oom
-- Called by each worker every second: stores its heartbeat, and returns the state of the queue and the orders of operators.
-- Elects the housekeeper, the worker that does the chores of the queue for all. Only the housekeeper's call publishes depth and
-- wait for producers and removes dead workers, so that the cost does not grow with the number of workers.
--
-- KEYS  1 meta, 2 workers, 3 paused, 4 later, 5 dead, 6 requests:high, 7 requests, 8 requests:low, 9 housekeeper,
--       10 stats
-- ARGV  1 consumer, 2 its rank as a housekeeper: -1 gives it up, 0 only to publish (it is quiet), 1 it works, 2 it may judge
--       leases too; 3 ms for which it is elected; 4 what the housekeeper has found: dead consumers that hold entries, separated
--       by spaces, '' for none; 5 the ends since the last call: `<number> <class>:<end> <count> ... ignored <count>`, '' for
--       none; 6 the command that the last answer brought, '' for none; 7 its pid_space to get the list of its neighbours, ''
--       for none; then field, value, ... of its heartbeat: words without spaces, among them rows_per_s, max_inputs,
--       max_text_bytes, precision, lease (ms), counted, pid_space
-- Returns { unix ms, 1 if the queue is paused, command for this worker or '', depth of high, normal, low, cap of high, normal,
--           low (0: none), side keys skipped for their type, 1 if the caller is the housekeeper, what the housekeeper has
--           found, the number of workers that are not yet removed, precisions of those with a recent heartbeat, separated by
--           spaces, '' when they agree, the neighbours: `<name> <ms since its heartbeat> ...` }
--         For all workers but the housekeeper, depths and caps are 0, and precisions ''.
-- Heartbeat: field <consumer> of `workers`, `<unix ms> field value field value ...`.
-- Housekeeper: `<rank> <consumer> <found> ...`, for the time of its election. A worker with a higher rank takes over.
-- Command: field command:<consumer> of `workers`; quiet, resume, drain or stop. It stays until the caller says that it has
-- received it, because an answer may be lost.
-- Counted in `stats`: the requests that ended, unless the last heartbeat has the same number (counted): then the call is a
-- repetition, because its answer was lost. Also by Redis' day in UTC, for 91 of them: field `day:<day modulo 91>` is
-- `<day> <done> <errors>`.
-- Removed, with its command, by a housekeeper that may judge leases: a worker without a heartbeat for two of its leases (at
-- least 5 s). Field died of `stats` counts them.
-- Published in `meta`: depth_* (unread entries), wait_ms_* (ms until a new entry would be read if all entries had one row; -1
-- if no worker works), later, dead, published_at; max_inputs and max_text_bytes, the smallest among workers with a recent
-- heartbeat. Caps come from meta's cap_*.
-- May not: fail because of a key of a wrong type: the worker must still learn of a pause. (A wrong housekeeper key is
-- replaced.)

-- include lib/call.lua

local meta, workers, house, stats = KEYS[1], KEYS[2], KEYS[9], KEYS[10]
local CLASSES, WEIGHTS, FRESH_MS, LEASE_MS = {'high', 'normal', 'low'}, {6, 3, 1}, 5000, 1800000
local JUDGES, COMMAND_MOST, DAY_MS, DAYS = 2, 31, 86400000, 91
local consumer, rank = ARGV[1], tonumber(ARGV[2])
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local skipped = 0

-- Returns the answer of a key, nil if it has a wrong type.
local function side(result)
  if type(result) ~= 'table' or not result.err then return result end
  skipped = skipped + 1
  return nil
end

local function depth_of(stream)
  local length = side(try('XLEN', stream)) or 0
  local pending = length > 0 and try('XPENDING', stream, 'sluice') or {0}
  if pending.err then pending = string.find(pending.err, '^NOGROUP') and {0} or side(pending) or {0} end
  return math.max(0, length - pending[1])
end

local heard -- all of `workers`, once it was read

local function hear()
  heard = heard or side(try('HGETALL', workers)) or {}
  return heard
end

-- Other workers with the same pid_space: the caller can ask its kernel whether their processes exist.
local function neighbours()
  local all, found = ARGV[7] == '' and {} or hear(), {}
  for i = 1, #all, 2 do
    if all[i] ~= consumer and string.match(all[i], '^[%w.-]+$') and string.match(all[i + 1], ' pid_space (%S+)') == ARGV[7] then
      found[#found + 1] = all[i]
      found[#found + 1] = math.max(0, now - tonumber(string.match(all[i + 1], '^%d+') or 0))
    end
  end
  return table.concat(found, ' ')
end

-- Reads the heartbeats of all workers. Returns the rows a second of those with a recent one, their precisions, and their
-- smallest max_inputs and max_text_bytes.
local function look_round()
  local all, spoken, rows, precisions, died, least = hear(), {}, 0, {}, 0, {}
  for i = 1, #all, 2 do
    if not string.find(all[i], '^command:') then
      local seen = tonumber(string.match(all[i + 1], '^%d+') or 0)
      spoken[all[i]] = true
      if now - seen < FRESH_MS then
        rows = rows + (tonumber(string.match(all[i + 1], ' rows_per_s ([%d.]+)')) or 0)
        local precision = string.match(all[i + 1], ' precision (%S+)')
        if precision and not precisions[precision] then
          precisions[precision] = true
          precisions[#precisions + 1] = precision
        end
        for _, limit in ipairs({'max_inputs', 'max_text_bytes'}) do
          local takes = tonumber(string.match(all[i + 1], ' ' .. limit .. ' ([1-9]%d*)'))
          if takes then least[limit] = math.min(least[limit] or takes, takes) end
        end
      elseif rank == JUDGES and now - seen > 2 * (tonumber(string.match(all[i + 1], ' lease (%d+)')) or LEASE_MS) then
        spoken[all[i]] = nil
        died = died + call('HDEL', workers, all[i])
      end
    end
  end
  for i = 1, #all, 2 do
    local named = string.match(all[i], '^command:(.*)$')
    if rank == JUDGES and named and not spoken[named] then call('HDEL', workers, all[i]) end
  end
  if died > 0 and side(try('HSETNX', stats, 'since', now)) then side(try('HINCRBY', stats, 'died', died)) end
  table.sort(precisions)
  return rows, #precisions > 1 and table.concat(precisions, ' ') or '', least
end

-- Returns the ms until each class is drained while the others are drained beside it by their weights.
local function waits(depths, rows)
  local wait, left, passed = {0, 0, 0}, {depths[1], depths[2], depths[3]}, 0
  while true do
    local weight, step = 0, math.huge
    for class = 1, 3 do
      if left[class] > 0 then weight = weight + WEIGHTS[class] end
    end
    if weight == 0 then return wait end
    for class = 1, 3 do
      if left[class] > 0 then step = math.min(step, left[class] * weight / (rows * WEIGHTS[class])) end
    end
    passed = passed + step
    for class = 1, 3 do
      if left[class] > 0 then
        left[class] = left[class] - step * rows * WEIGHTS[class] / weight
        if left[class] < 0.001 then left[class] = 0 end
        wait[class] = math.ceil(passed * 1000)
      end
    end
  end
end

local function count_day(done, errors)
  local today = math.floor(now / DAY_MS)
  local field = 'day:' .. today % DAYS
  local day, done_before, errors_before = string.match(side(try('HGET', stats, field)) or '', '^(%d+) (%d+) (%d+)$')
  if tonumber(day) ~= today then done_before, errors_before = 0, 0 end
  side(try('HSET', stats, field, string.format('%d %d %d', today, done_before + done, errors_before + errors)))
end

local function count()
  local number, ended = string.match(ARGV[5], '^(%d+) (.+)$')
  if not number then return end
  local before = side(try('HGET', workers, consumer))
  if before and string.match(before, ' counted (%d+)') == number then return end
  if not side(try('HSETNX', stats, 'since', now)) then return end
  local done, errors = 0, 0
  for field, how_many in string.gmatch(ended, '(%S+) (%d+)') do
    side(try('HINCRBY', stats, field, how_many))
    local how = string.match(field, ':(.*)$')
    if how == 'done' then done = done + how_many elseif how and how ~= 'cancelled' then errors = errors + how_many end
  end
  count_day(done, errors)
end

-- Returns 1 if the caller is the housekeeper from now on, and what another housekeeper has found.
local function elect()
  local holder = try('GET', house)
  if type(holder) == 'table' then
    if not string.find(holder.err, '^WRONGTYPE') then error(holder) end
    holder = ''
  end
  local holds, name, found = string.match(holder or '', '^(%d) (%S+) ?(.*)$')
  if rank < 0 then
    if name == consumer then call('DEL', house) end
    return 0, ''
  end
  if name and name ~= consumer and tonumber(holds) >= rank then return 0, found end
  call('SET', house, rank .. ' ' .. consumer .. (ARGV[4] == '' and '' or ' ' .. ARGV[4]), 'PX', ARGV[3])
  return 1, ''
end

count()
local words = {}
for i = 8, #ARGV do words[#words + 1] = ARGV[i] end
side(try('HSET', workers, consumer, now .. ' ' .. table.concat(words, ' ')))
local command = string.sub(side(try('HGET', workers, 'command:' .. consumer)) or '', 1, COMMAND_MOST)
if command ~= '' and command == ARGV[6] then
  side(try('HDEL', workers, 'command:' .. consumer))
  command = ''
end

local paused, keeps, found = call('EXISTS', KEYS[3]), elect()
local known = (side(try('HLEN', workers)) or 0) - (command ~= '' and 1 or 0)
if keeps == 0 then return {now, paused, command, 0, 0, 0, 0, 0, 0, skipped, 0, found, known, '', neighbours()} end

local depths = {depth_of(KEYS[6]), depth_of(KEYS[7]), depth_of(KEYS[8])}
local rows, precisions, least = look_round()
local wait = rows > 0 and waits(depths, rows) or {-1, -1, -1}
local publish = {'published_at', now, 'later', side(try('ZCARD', KEYS[4])) or 0, 'dead', side(try('XLEN', KEYS[5])) or 0}
for class = 1, 3 do
  for _, word in ipairs({'depth_' .. CLASSES[class], depths[class], 'wait_ms_' .. CLASSES[class], wait[class]}) do
    publish[#publish + 1] = word
  end
end
for limit, takes in pairs(least) do
  publish[#publish + 1] = limit
  publish[#publish + 1] = takes
end
side(try('HSET', meta, unpack(publish)))

local caps = side(try('HMGET', meta, 'cap_high', 'cap_normal', 'cap_low')) or {}
local function cap(class) return math.max(0, math.floor(tonumber(caps[class] or 0) or 0)) end
return {now, paused, command, depths[1], depths[2], depths[3], cap(1), cap(2), cap(3), skipped, 1, '', known, precisions, neighbours()}
