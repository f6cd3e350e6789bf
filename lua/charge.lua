#!lua flags=allow-oom
-- Puts a lonely run on record before it starts: should the worker crash now, the entry is to blame and nobody else.
--
-- KEYS  1 stream, 2 trouble
-- ARGV  1 consumer, then for each entry: entry id, original name, number of this attempt
-- A call whose answer was lost is repeated: each consumer counts once (trouble: attempts, lonely runs, entry, consumer).
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
    local known = redis.pcall('HGET', trouble, name) -- a side key: of a wrong type it stops nobody
    local wrong_type = type(known) == 'table'
    if wrong_type and not string.find(known.err, '^WRONGTYPE') then return known end
    local runs, by = string.match(type(known) == 'string' and known or '', '^%d+ (%d+) %S+ ?(%S*)')
    lonely = tonumber(runs or 0)
    if by ~= ARGV[1] then
      lonely = lonely + 1
      if not wrong_type then
        call('HSET', trouble, name, (attempt - 1) .. ' ' .. lonely .. ' ' .. id .. ' ' .. ARGV[1])
      end
    end
  end
  results[#results + 1] = lonely
end
return results
