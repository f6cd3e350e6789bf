-- `trouble`, the hash of troubled requests: for a name "attempts quarantine-runs entry runs taken", as in `1 2 5-0 a,+b,c 3`.
--   attempts     the failed ones
--   runs alone   the open ones: recorded before they began, and neither ended nor given back
--   entry        the one that carries the name: promote writes it, a producer cannot
--   runs         the open ones, with commas: a worker for its run alone, `+` and a worker for its run in a group; `-` for none
--   taken        how often the entry was taken over from a dead worker since a run of it was charged last
-- `taken` is left out while it is 0, and then so is the `-` of no runs. (Before there were groups, a record ended after the
-- workers of runs alone: it reads the same.) The script has a local `trouble`, the key, and the piece call.

-- Returns the answer of a side key, nil if it has a wrong type, which stops no script. Any other error does.
local function unless_wrong(result)
  if type(result) ~= 'table' or not result.err then return result end
  if not string.find(result.err, '^WRONGTYPE') then error(result) end
  return nil
end

-- Returns the record of a name: false if there is none, nil if the key has a wrong type.
local function known_of(name)
  return unless_wrong(try('HGET', trouble, name))
end

-- Returns whether a name is of this class and, by its record, carried by this entry.
local function is_carrier(id, known, name, prefix)
  return known and string.match(known, '^%d+ %d+ (%S+)') == id and string.match(name, '^%l*:?') == prefix
end

-- Splits a record: returns attempts, the carrier, the list of open runs, taken. Without a record: no attempts, no carrier.
local function read_record(known)
  local attempts, carrier, rest = string.match(known or '', '^(%d+) %d+ (%S+) ?(.*)$')
  local runs = {}
  for run in string.gmatch(string.match(rest or '', '^%S+') or '', '[^,]+') do
    if run ~= '-' then runs[#runs + 1] = run end
  end
  return attempts or 0, carrier, runs, tonumber(string.match(rest or '', '^%S+ (%d+)$') or 0)
end

local function is_alone(run)
  return string.sub(run, 1, 1) ~= '+'
end

-- Writes a record and returns how many of the runs are alone.
local function write_record(name, attempts, id, runs, taken)
  local alone, more = 0, ''
  for _, run in ipairs(runs) do
    if is_alone(run) then alone = alone + 1 end
  end
  if runs[1] or taken > 0 then more = ' ' .. (runs[1] and table.concat(runs, ',') or '-') end
  if taken > 0 then more = more .. ' ' .. taken end
  call('HSET', trouble, name, attempts .. ' ' .. alone .. ' ' .. id .. more)
  return alone
end

-- Returns the open runs alone of this entry, -1 if only runs in groups are open; 0 if another entry carries the name.
local function open_runs(id, name)
  local _, carrier, runs = read_record(known_of(name))
  local alone = 0
  if carrier ~= id then return 0 end
  for _, run in ipairs(runs) do
    if is_alone(run) then alone = alone + 1 end
  end
  return alone == 0 and runs[1] and -1 or alone
end

-- Returns the runs without those of this worker, and whether it had any.
local function runs_of_others(runs, worker)
  local others = {}
  for _, run in ipairs(runs) do
    if run ~= worker and run ~= '+' .. worker then others[#others + 1] = run end
  end
  return others, #others < #runs
end

-- Takes a worker's run of an entry off the record, if there is one, because it crashed no worker.
local function uncharge(id, name, worker)
  local attempts, carrier, runs, taken = read_record(known_of(name))
  if carrier ~= id then return end
  local others, had = runs_of_others(runs, worker)
  if had then write_record(name, attempts, id, others, taken) end
end
