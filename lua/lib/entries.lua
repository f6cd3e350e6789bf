-- Entries of a stream, for the scripts that take some of them.

-- A script looks at no more entries in one call, and no further once it has seen so many bytes of them: then it goes on in
-- the next call. Entry by entry, because nobody knows how large the next one is.
local LOOKS, LOOK_BYTES = 64, 1048576

-- The last id that XREADGROUP has given out; nil when there is no group.
local function read_until(stream)
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local facts = {}
    for i = 1, #group, 2 do facts[group[i]] = group[i + 1] end
    if facts.name == 'sluice' then return facts['last-delivered-id'] end
  end
end

-- What an entry weighs, and the name of its request: its own, or the one that it was parked under.
local function size_and_name(id, fields, prefix)
  local size, name = 0, prefix .. id
  for i = 1, #fields, 2 do
    size = size + #fields[i] + #fields[i + 1]
    if fields[i] == '_id' then name = fields[i + 1] end
  end
  return size, name
end
