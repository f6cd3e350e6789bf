-- Names of requests: the entry id, with its class before it ('high:', '', 'low:').

local CLASS = {['high:'] = 0, [''] = 1, ['low:'] = 2}

-- Returns the prefix of the names of a stream's own entries.
local function prefix_of(stream)
  local class = string.match(stream, ':requests:(%l+)$')
  return class and class .. ':' or ''
end

-- How far an entry's id may be ahead of Redis' clock, in ms, and still be believed. An id further ahead was made up by a
-- producer, or Redis has continued from one that was made up.
local AHEAD_MS = 2000

-- Returns the unix ms at which a request was first seen, if that counts in place of its name's time; else nil.
local function seen_at(name, first)
  -- Usually it is the name's own time. This check makes no new string; settle calls it for each entry.
  local at = first and string.find(name, first, 1, true)
  if at and (at == 1 or string.sub(name, at - 1, at - 1) == ':') and string.byte(name, at + #first) == 45 then return nil end
  first = string.match(first or '', '^[1-9]%d*$')
  return first ~= string.match(name, '(%d+)%-%d+$') and first or nil
end

-- Returns the name of the request that a reply is of, and its `first_at`, from `info`: they are its first members, and a name
-- has nothing to escape.
local function info_owner(info)
  local name, rest = string.match(info, '^{"entry":"([%l%d:-]+)"()')
  if name then return name, string.match(info, '^,"first_at":(%d+)', rest) end
end

-- Is the request with this name younger than that one? By time, sequence, then class. Numbers stay decimal text without
-- leading zeros: a sequence number may not fit into a double.
--   seen, than_seen  as seen_at says; such a request is older than one that got its id from Redis in the same ms
local function newer(name, than, seen, than_seen)
  local class_a, ms_a, seq_a = string.match(name, '^(%l*:?)(%d+)%-(%d+)$')
  local class_b, ms_b, seq_b = string.match(than, '^(%l*:?)(%d+)%-(%d+)$')
  if name == than or not ms_a or not ms_b then return false end
  local function order(a, b)
    if #a ~= #b then return #a - #b end
    return a == b and 0 or (a < b and -1 or 1)
  end
  local by = order(seen or ms_a, than_seen or ms_b)
  if by == 0 and not seen ~= not than_seen then return not seen end
  if by == 0 then by = order(seq_a, seq_b) end
  if by == 0 then by = (CLASS[class_a] or 1) - (CLASS[class_b] or 1) end
  return by > 0
end
