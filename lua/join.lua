#!lua flags=allow-oom
-- Lets a worker join a queue: pins the queue's protocol and model, and takes the worker's alive key.
--
-- KEYS  1 meta, 2 alive
-- ARGV  1 protocol (whole number), 2 model id, 3 token, 4 lease in ms, 5 precision,
--       6 the model's name, 7 its facts: JSON, as docs/protocol.md says;
--       then what a worker must be allowed to run, with `@` for the queue's keys (src/redis/rights.h)
-- Returns { code, text }
--        1  joined; after a reconnect the key may still be ours
--        0  the name is taken: the alive key has another token; text is empty
--       -1  the queue has a higher protocol; text is its number
--       -2  the queue belongs to another model; text is its id, and its name if the queue knows it
--       -3  the queue is pinned to another precision (meta.precision, set by an operator); text is that precision
--       -4  a right is missing; text says which. If another script found it missing in the middle, that script would end half
--           done
-- May not: change what another worker has pinned; take a key from its holder.

-- include lib/call.lua

local meta, alive = KEYS[1], KEYS[2]
local queue = string.sub(meta, 1, -5) -- the prefix of all its keys

local function may(command)
  local words = {}
  for word in string.gmatch(command, '%S+') do words[#words + 1] = word end
  return redis.acl_check_cmd(unpack(words))
end

for i = 8, #ARGV do
  for _, stream in ipairs({'requests:high', 'requests', 'requests:low'}) do
    local command = string.gsub(string.gsub(ARGV[i], '@requests%*', '@' .. stream), '@', queue)
    if not may(command) then return {-4, command} end
  end
end

local holder = call('GET', alive)
call('HSETNX', meta, 'protocol', ARGV[1])
local protocol = call('HGET', meta, 'protocol')
if (tonumber(protocol) or math.huge) > tonumber(ARGV[1]) then return {-1, protocol} end
call('HSETNX', meta, 'model_id', ARGV[2])
local model = call('HGET', meta, 'model_id')
if model ~= ARGV[2] then
  local name = call('HGET', meta, 'model')
  return {-2, name and model .. ' (' .. name .. ')' or model}
end
call('HSETNX', meta, 'model', ARGV[6]) -- only for people; the id decides
local precision = call('HGET', meta, 'precision')
if precision and precision ~= ARGV[5] then return {-3, precision} end

call('HSET', meta, 'model_facts', ARGV[7])

if holder and holder ~= ARGV[3] then return {0, ''} end
call('SET', alive, ARGV[3], 'PX', ARGV[4])
return {1, ''}
