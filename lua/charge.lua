#!lua flags=allow-oom
-- Puts a lonely run on record before it starts: should the worker crash now, the entry is to blame and nobody else.
--
-- KEYS  1 stream, 2 trouble
-- ARGV  1 consumer, then for each entry: entry id, original name, claims (1: the name comes from `_id`), number of this
--       attempt
-- What stands in trouble: lib/trouble.lua.
-- A call whose answer was lost is repeated: each consumer counts once.
-- Returns for each entry its open lonely runs, this one included; 0 when it is no longer pending or another consumer owns
-- it (a run of the caller whose answer was lost is taken off then: it never began); -3 when the name is not this entry's
-- (a producer wrote the `_id`).
-- May not: count a run that this caller may not start.

local call = redis.call
local stream, trouble, consumer = KEYS[1], KEYS[2], ARGV[1]
local results = {}

-- include lib/names.lua
-- include lib/trouble.lua

local function charge(id, name, claims, attempt)
  local pending = call('XPENDING', stream, 'sluice', id, id, 1)[1]
  local known = known_of(name)
  local mine = pending and pending[2] == consumer
  if known == nil then return mine and 1 or 0 end
  if not mine then
    uncharge(id, name, consumer)
    return 0
  end
  if claims == '1' and not is_carrier(id, known, name, prefix_of(stream)) then return -3 end
  local workers = {}
  for worker in string.gmatch(string.match(known or '', '^%d+ %d+ %S+ (%S+)$') or '', '[^,]+') do
    if worker ~= consumer then workers[#workers + 1] = worker end
  end
  workers[#workers + 1] = consumer
  write_record(name, attempt - 1, id, workers)
  return #workers
end

for i = 2, #ARGV, 4 do
  results[#results + 1] = charge(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
end
return results
