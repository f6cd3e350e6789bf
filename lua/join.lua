#!lua flags=allow-oom
-- Lets a worker join a queue: pins what the queue is made for, and takes the worker's alive key.
--
-- KEYS  1 meta, 2 alive
-- ARGV  1 protocol (whole number), 2 model id, 3 token, 4 lease in ms, 5 precision
-- Returns { code, text }
--        1  joined (again: the key may be ours still, after a reconnect)
--        0  the name is taken: the alive key carries another token, text is empty
--       -1  the queue speaks a higher protocol, text says which
--       -2  the queue belongs to another model, text is its id
--       -3  the queue wants another precision (meta.precision, which only an operator sets), text says which
-- May not: change what another worker has pinned; take a key from its holder.

local call = redis.call
local meta, alive = KEYS[1], KEYS[2]
local holder = call('GET', alive)

call('HSETNX', meta, 'protocol', ARGV[1])
local protocol = call('HGET', meta, 'protocol')
if (tonumber(protocol) or math.huge) > tonumber(ARGV[1]) then return {-1, protocol} end
call('HSETNX', meta, 'model_id', ARGV[2])
local model = call('HGET', meta, 'model_id')
if model ~= ARGV[2] then return {-2, model} end
local precision = call('HGET', meta, 'precision')
if precision and precision ~= ARGV[5] then return {-3, precision} end

if holder and holder ~= ARGV[3] then return {0, ''} end
call('SET', alive, ARGV[3], 'PX', ARGV[4])
return {1, ''}
