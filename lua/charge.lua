#!lua flags=allow-oom
-- Puts a lonely run on record before it starts: should the worker crash now, the entry is to blame and nobody else.
--
-- KEYS  1 stream, 2 trouble
-- ARGV  1 consumer, then for each entry: entry id, original name, claims (1: the name comes from `_id`), number of this
--       attempt
-- A record of trouble: attempts that failed, lonely runs that are open, entry id, the workers whose runs they are (a,b).
-- A call whose answer was lost is repeated: each consumer counts once.
-- Returns for each entry its open lonely runs, this one included; 0 when it is no longer pending or another consumer owns
-- it (a run of the caller whose answer was lost is taken off then: it never began); -3 when the name is not this entry's
-- (a producer wrote the `_id`).
-- May not: count a run that this caller may not start.

local call = redis.call
local stream, trouble, consumer = KEYS[1], KEYS[2], ARGV[1]
local results = {}

local function write(name, attempts, id, runs)
  local open = runs[1] and ' ' .. table.concat(runs, ',') or ''
  call('HSET', trouble, name, attempts .. ' ' .. #runs .. ' ' .. id .. open)
end

local function charge(id, name, claims, attempt)
  local pending = call('XPENDING', stream, 'sluice', id, id, 1)[1]
  local known = redis.pcall('HGET', trouble, name)
  local mine = pending and pending[2] == consumer
  if type(known) == 'table' then -- a side key: of a wrong type it stops nobody
    if not string.find(known.err, '^WRONGTYPE') then error(known) end
    return mine and 1 or 0
  end
  local attempts, carrier, workers = string.match(known or '', '^(%d+) %d+ (%S+) ?(%S*)')
  if mine and claims == '1' then
    local class = string.match(stream, ':requests:(%l+)$')
    if carrier ~= id or string.match(name, '^%l*:?') ~= (class and class .. ':' or '') then return -3 end
  end
  local runs, before = {}, 0
  for worker in string.gmatch(workers or '', '[^,]+') do
    before = before + 1
    if worker ~= consumer then runs[#runs + 1] = worker end
  end
  if mine then
    runs[#runs + 1] = consumer
    write(name, attempt - 1, id, runs)
    return #runs
  end
  if carrier == id and #runs < before then write(name, attempts, id, runs) end
  return 0
end

for i = 2, #ARGV, 4 do
  results[#results + 1] = charge(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
end
return results
