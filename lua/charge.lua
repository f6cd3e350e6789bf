#!lua flags=allow-oom
-- Puts a lonely run on record before it starts: should the worker crash now, the entry is to blame and nobody else.
--
-- KEYS  1 stream, 2 trouble
-- ARGV  1 consumer, then for each entry: entry id, original name, claims (1: the name comes from `_id`), number of this
--       attempt
-- A record of trouble: attempts that failed, lonely runs that are open, entry id, the workers whose runs they are (a,b).
-- A call whose answer was lost is repeated: each consumer counts once.
-- Returns for each entry its open lonely runs, this one included; 0 when it is no longer pending or another consumer owns
-- it; -3 when the name is not this entry's (a producer wrote the `_id`).
-- May not: count a run that this caller may not start.

local call = redis.call
local stream, trouble, consumer = KEYS[1], KEYS[2], ARGV[1]
local results = {}

local function charge(id, name, claims, attempt)
  local pending = call('XPENDING', stream, 'sluice', id, id, 1)[1]
  if not pending or pending[2] ~= consumer then return 0 end
  local known = redis.pcall('HGET', trouble, name)
  if type(known) == 'table' then -- a side key: of a wrong type it stops nobody
    if not string.find(known.err, '^WRONGTYPE') then error(known) end
    return 1
  end
  local carrier, workers = string.match(known or '', '^%d+ %d+ (%S+) ?(%S*)')
  if claims == '1' then
    local class = string.match(stream, ':requests:(%l+)$')
    if carrier ~= id or string.match(name, '^%l*:?') ~= (class and class .. ':' or '') then return -3 end
  end
  local runs = {}
  for worker in string.gmatch(workers or '', '[^,]+') do
    if worker ~= consumer then runs[#runs + 1] = worker end
  end
  runs[#runs + 1] = consumer
  call('HSET', trouble, name, (attempt - 1) .. ' ' .. #runs .. ' ' .. id .. ' ' .. table.concat(runs, ','))
  return #runs
end

for i = 2, #ARGV, 4 do
  results[#results + 1] = charge(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
end
return results
