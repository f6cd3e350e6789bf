#!lua flags=allow-oom
-- Puts a lonely run on record before it starts: should the worker crash now, the entry is to blame and nobody else.
--
-- KEYS  1 stream, 2 trouble
-- ARGV  1 consumer, then for each entry: entry id, original name, number of this attempt
-- Returns for each entry its lonely runs, this one included; 0 when it is no longer pending or another consumer owns it
-- May not: count a run that this caller may not start.

local call = redis.call
local stream, trouble = KEYS[1], KEYS[2]
local results = {}

for i = 2, #ARGV, 3 do
  local id, name, attempt = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local pending = call('XPENDING', stream, 'sluice', id, id, 1)[1]
  local lonely = 0
  if pending and pending[2] == ARGV[1] then
    local known = call('HGET', trouble, name)
    lonely = (known and tonumber(string.match(known, '^%d+ (%d+)') or 0) or 0) + 1
    call('HSET', trouble, name, (attempt - 1) .. ' ' .. lonely .. ' ' .. id)
  end
  results[#results + 1] = lonely
end
return results
