-- A walk through a stream that claims entries. The script has locals `stream`, `me`, `most`, `max_bytes`, `entries`, `oversized`
-- and `bytes` (0 at first), and the pieces call and entries.

-- Calls look_at(id, fields) with each entry after `last` and up to `to`. It returns the entry's size, and true if the entry has
-- to wait for the next call. Returns 1 if that or a limit ended the walk before `to`, else 0; and how far it has looked.
local function walk(last, to, look_at)
  local looked = 0
  for _ = 1, LOOKS do
    local message = next_entry(stream, last, to)
    if not message then return 0, last end
    local size, waits = look_at(message[1], message[2])
    if waits then return 1, last end
    last, looked = message[1], looked + size
    if looked >= LOOK_BYTES then return 1, last end
  end
  return 1, last
end

local function is_pending(id)
  return call('XPENDING', stream, 'sluice', id, id, 1)[1]
end

-- Claims an entry that nobody has: `entry` is its answer, or only its id if it is above the byte limit. Returns false when the
-- answer is full.
local function take(id, size, entry)
  if #entries + #oversized == most or (size <= max_bytes and bytes + size > max_bytes) then return false end
  call('XCLAIM', stream, 'sluice', me, 0, id, 'FORCE', 'JUSTID')
  if size > max_bytes then
    oversized[#oversized + 1] = id
  else
    bytes = bytes + size
    entries[#entries + 1] = entry
  end
  return true
end
