#!lua flags=allow-oom
-- Extends the lease of a worker, if it is still its own.
--
-- KEYS  1 alive
-- ARGV  1 token, 2 lease in ms
-- Returns 1 extended, 0 the key is gone or a namesake's: the worker may have been declared dead
-- May not: restore an expired lease (others may have the entries by now).

-- include lib/call.lua

if call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return call('PEXPIRE', KEYS[1], ARGV[2])
