#!lua flags=allow-oom
-- Creates the group of a stream, and the stream if it is missing: at 0, because a stream holds exactly the unfinished work.
--
-- KEYS  1 stream
-- ARGV  none
-- Returns 1 when it was created, 0 when it existed
-- May not: touch an existing group. It runs when Redis is full, because without the group nothing can be read.

-- include lib/call.lua

local made = try('XGROUP', 'CREATE', KEYS[1], 'sluice', '0', 'MKSTREAM')
if not made.err then return 1 end
return string.find(made.err, '^BUSYGROUP') and 0 or made
