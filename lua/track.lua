#!lua
-- Writes `status queued` for requests that have no reply yet, so that who polls can tell queued from unknown.
--
-- KEYS  1 stream, then for each entry its reply key
-- ARGV  for each entry: entry id, original name, ttl in ms
-- Returns one number for each entry: 1 written, 0 not: there is a reply already, or the entry is no longer pending (a reply
-- may have been read and deleted by now), or the name is not that of this entry (who comes back from `later` was tracked)
-- May not: touch a reply; run when Redis is out of memory (no allow-oom: a request lives without it).

local call = redis.call
local stream = KEYS[1]
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- include lib/names.lua

local prefix, results = prefix_of(stream), {}

for i = 1, #ARGV, 3 do
  local id, name, reply, written = ARGV[i], ARGV[i + 1], KEYS[#results + 2], 0
  if name == prefix .. id and call('EXISTS', reply) == 0 and call('XPENDING', stream, 'sluice', id, id, 1)[1] then
    call('HSET', reply, 'status', 'queued', 'id', string.match(reply, ':reply:(.*)$'), 'entry', name)
    if tonumber(string.match(id, '^%d+')) > now + AHEAD_MS then call('HSET', reply, 'first_at', string.format('%.0f', now)) end
    call('PEXPIRE', reply, ARGV[i + 2])
    written = 1
  end
  results[#results + 1] = written
end
return results
