#!lua flags=allow-oom
-- Sends tokens of texts that are being written: adds an entry to the stream of tokens of each, and puts them on its record.
--
-- KEYS  1 stream, 2 trouble, then for each text its stream of tokens and the record of those sent
-- ARGV  1 consumer, then for each text:
--         entry id, original name, claims (1: the name comes from `_id`), id of the reply, ttl in ms, index of the first token,
--         their ids (four bytes each), their text
-- Returns one number for each text.
--        n  so many tokens are on the record now. If that was not the index, nothing was changed: the caller goes on from n
--       -1  not the caller's: the entry is no longer pending, or another consumer owns it; nothing was changed
--       -3  the name is not this entry's (a producer wrote the `_id`); nothing was changed
-- So a repeated call changes nothing, and neither does that of a worker which has lost the request.
-- May not: add tokens twice, or leave some out; add any for a worker that does not own the entry.

-- include lib/call.lua

local stream, trouble, consumer = KEYS[1], KEYS[2], ARGV[1]
local RECORD_MS = 30 * 86400000 -- a record lasts as long as a request may wait; settle and cancel delete it

-- include lib/names.lua
-- include lib/trouble.lua

-- Returns the answer of a side key, nil if the key cannot be used: it has a wrong type, or is a stream without ids left.
local function side(result)
  if type(result) == 'table' and result.err then return nil end
  return result
end

-- include lib/tokens.lua

local function send(tokens, record, id, name, claims, reply_id, ttl, index, ids, text)
  local pending = call('XPENDING', stream, 'sluice', id, id, 1)[1]
  if not pending or pending[2] ~= consumer then return -1 end
  if claims == '1' then
    local known = known_of(name)
    if known ~= nil and not is_carrier(id, known, name, prefix_of(stream)) then return -3 end
  end
  local sent = unless_wrong(try('STRLEN', record))
  if not sent then
    call('DEL', record)
    sent = 0
  end
  if sent ~= 4 * index or ids == '' then return sent / 4 end
  add_tokens(tokens, 'entry', name, 'id', reply_id, 'index', index, 'tokens', string.format('%d', #ids / 4), 'text', text)
  call('APPEND', record, ids)
  keep_tokens(tokens, ttl)
  if sent == 0 then call('PEXPIRE', record, RECORD_MS) end
  return (sent + #ids) / 4
end

local results, argument = {}, 2
for key = 3, #KEYS, 2 do
  results[#results + 1] = send(KEYS[key], KEYS[key + 1], unpack(ARGV, argument, argument + 7))
  argument = argument + 8
end
return results
