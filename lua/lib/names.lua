-- Names of requests: the entry id, with its class before it ('high:', '', 'low:').

local CLASS = {['high:'] = 0, [''] = 1, ['low:'] = 2}

-- What stands before the names of a stream's own entries.
local function prefix_of(stream)
  local class = string.match(stream, ':requests:(%l+)$')
  return class and class .. ':' or ''
end

-- Is the entry with this name younger than that one? By original time, sequence, then class. Numbers stay decimal text
-- without leading zeros: a sequence number may not fit into a double.
local function newer(name, than)
  local class_a, ms_a, seq_a = string.match(name, '^(%l*:?)(%d+)%-(%d+)$')
  local class_b, ms_b, seq_b = string.match(than, '^(%l*:?)(%d+)%-(%d+)$')
  if name == than or not ms_a or not ms_b then return false end
  local function order(a, b)
    if #a ~= #b then return #a - #b end
    return a == b and 0 or (a < b and -1 or 1)
  end
  local by = order(ms_a, ms_b)
  if by == 0 then by = order(seq_a, seq_b) end
  if by == 0 then by = (CLASS[class_a] or 1) - (CLASS[class_b] or 1) end
  return by > 0
end
