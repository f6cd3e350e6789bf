#!lua flags=allow-oom
-- Makes the group of a stream, and the stream where there is none: at 0, because a stream holds exactly the unfinished work.
--
-- KEYS  1 stream
-- ARGV  none
-- Returns 1 when it was made, 0 when it was there
-- May not: touch a group that is there. It runs in a full Redis, where nothing would be read without it.

local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], 'sluice', '0', 'MKSTREAM')
if not made.err then return 1 end
return string.find(made.err, '^BUSYGROUP') and 0 or made
