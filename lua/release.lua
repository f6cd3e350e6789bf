#!lua flags=allow-oom
-- Gives back entries that were claimed and not started, and signs the worker off.
--
-- KEYS  1 stream, 2 alive, 3 trouble, 4 workers, 5 housekeeper
-- ARGV  1 consumer, 2 token of the alive key, 3 last, 4 name prefix of the class ('', 'high:', 'low:'), then entry ids
--       last  0: only these ids, 64 at most
--             1: also give back all entries that are pending with the consumer in this stream, and delete the consumer; 64
--                entries or 1 MiB a call: call again when there are more
--             2: the same for the last stream, then delete its alive key and its fields of `workers`, and resign as the
--                housekeeper
-- Returns { given back, 1 when the consumer is deleted, 1 when it may hold more }
-- A run alone that the caller recorded and gives back has crashed no worker, so it is removed from the record, even if another
-- consumer has the entry by now. Runs of others stay on record.
-- May not: give back an entry that is not the caller's; touch the alive key of a namesake; claim a vanished entry (XCLAIM drops
-- it silently; reclaim will answer it); delete a consumer that holds anything.

-- include lib/call.lua

local stream, alive, trouble, workers, house = unpack(KEYS)
local me, last, prefix = ARGV[1], ARGV[3], ARGV[4]
local given, deleted, looked = 0, 0, 0
local leaving = last ~= '0' and call('GET', alive) == ARGV[2]

-- include lib/entries.lua
-- include lib/trouble.lua

-- Takes the caller's run alone of an entry off the record, if there is one.
local function forgive(id, fields)
  local size, name = size_and_name(id, fields, prefix)
  looked = looked + size
  uncharge(id, name, me)
end

local function give_back(id)
  local message = call('XRANGE', stream, id, id)[1]
  if message then
    forgive(id, message[2])
    call('XCLAIM', stream, 'sluice', 'released', 0, id, 'JUSTID')
    given = given + 1
  end
end

-- Gives back all but vanished entries. Returns 1 if there may be more.
local function give_back_all()
  local from = '-'
  repeat
    local pending = call('XPENDING', stream, 'sluice', from, '+', LOOKS, me)
    for _, entry in ipairs(pending) do
      if given >= LOOKS or looked >= LOOK_BYTES then return 1 end
      give_back(entry[1])
      if entry[1] == LAST_ID then return 0 end
      from = '(' .. entry[1]
    end
  until #pending == 0
  return 0
end

for i = 5, #ARGV do
  local pending = call('XPENDING', stream, 'sluice', ARGV[i], ARGV[i], 1)[1]
  if pending and pending[2] == me then
    give_back(ARGV[i])
  else
    local message = call('XRANGE', stream, ARGV[i], ARGV[i])[1]
    if message then forgive(ARGV[i], message[2]) end
  end
end
if leaving then
  if give_back_all() == 1 then return {given, 0, 1} end
  if #call('XPENDING', stream, 'sluice', '-', '+', 1, me) == 0 then
    call('XGROUP', 'DELCONSUMER', stream, 'sluice', me)
    deleted = 1
  end
  if last == '2' then
    unless_wrong(try('HDEL', workers, me, 'command:' .. me))
    if string.match(unless_wrong(try('GET', house)) or '', '^%d (%S+)') == me then call('DEL', house) end
    call('DEL', alive)
  end
end
return {given, deleted, 0}
