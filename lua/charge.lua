#!lua flags=allow-oom
-- Records runs of suspects before they start. If the worker crashes now, these requests are to blame and no others.
--
-- KEYS  1 stream, 2 trouble
-- ARGV  1 consumer, 2 `alone` for runs alone or `group`, then for each entry, 64 at most: entry id, original name, claims
--       (1: the name comes from `_id`), number of this attempt
-- The format of trouble: lib/trouble.lua. A charge resets the count of takeovers, because the entry has been read.
-- A repeated call (its answer was lost) changes nothing: each consumer counts once.
-- Returns for each entry
--        n  on record; its open runs alone, this one included, or 1 for a group
--        0  no longer pending, or another consumer owns it (a run that the caller recorded earlier is then removed, because it
--           never began)
--       -3  the name is not this entry's (a producer wrote the `_id`)
--       -8  not for a group: a run of another worker is open, so it runs alone; nothing was changed
-- If the entry's own id is the name of another request, nothing is counted: the record belongs to that request.
-- May not: count a run that this caller may not start.

-- include lib/call.lua

local stream, trouble, consumer, group = KEYS[1], KEYS[2], ARGV[1], ARGV[2] == 'group'
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
  if claims ~= '1' and known and not is_carrier(id, known, name, prefix_of(stream)) then return 1 end
  local _, _, runs = read_record(known)
  runs = runs_of_others(runs, consumer)
  if group and runs[1] then return -8 end
  runs[#runs + 1] = group and '+' .. consumer or consumer
  local alone = write_record(name, attempt - 1, id, runs, 0)
  return group and 1 or alone
end

for i = 3, #ARGV, 4 do
  results[#results + 1] = charge(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
end
return results
