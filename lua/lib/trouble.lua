-- `trouble`, the hash of requests that had some: for a name "attempts lonely-runs entry workers", as in `1 2 5-0 a,b`.
--   attempts     that failed
--   lonely runs  that are open: charged before they began, and neither ended nor given back
--   entry        that carries the name: promote writes it, a producer cannot
--   workers      whose runs they are, with commas; left out when there are none
-- The script has a local `trouble`, the key.

-- What is known of a name: false for nothing, nil where the key has a wrong type, which stops nobody. A missing right does.
local function known_of(name)
  local known = redis.pcall('HGET', trouble, name)
  if type(known) ~= 'table' then return known end
  if not string.find(known.err, '^WRONGTYPE') then error(known) end
  return nil
end

-- Whether a name of this class is, by what is known of it, carried by this entry.
local function is_carrier(id, known, name, prefix)
  return known and string.match(known, '^%d+ %d+ (%S+)') == id and string.match(name, '^%l*:?') == prefix
end

-- Open lonely runs of this very entry; of another that has the name they say nothing.
local function lonely_runs(id, name)
  local runs, carrier = string.match(known_of(name) or '', '^%d+ (%d+) (%S+)')
  return carrier == id and tonumber(runs) or 0
end

local function write_record(name, attempts, id, workers)
  local open = workers[1] and ' ' .. table.concat(workers, ',') or ''
  redis.call('HSET', trouble, name, attempts .. ' ' .. #workers .. ' ' .. id .. open)
end

-- Takes a worker's lonely run of an entry off the record, if there is one: it crashed nobody.
local function uncharge(id, name, worker)
  local attempts, carrier, workers = string.match(known_of(name) or '', '^(%d+) %d+ (%S+) (%S+)$')
  if carrier ~= id then return end
  local others, found = {}, false
  for other in string.gmatch(workers, '[^,]+') do
    if other == worker then
      found = true
    else
      others[#others + 1] = other
    end
  end
  if found then write_record(name, attempts, id, others) end
end
