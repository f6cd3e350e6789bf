#!lua flags=allow-oom
-- Takes requests and tokens of an API key from its bucket. The bucket fills evenly, up to what a minute allows.
--
-- KEYS  1 limit:<key>
-- ARGV  1 requests a minute, 2 tokens a minute (0: any number), 3 requests to take, 4 tokens to take
--       1 and 2: 0 to 10^9; 3 and 4: 0 to 10^12
-- Returns
--        0  taken
--       ms  nothing was taken: so long until the call is worth another try
-- Tokens are known only after a call. So requests may be taken while any token is left, and tokens are always taken: their
-- number may become negative.
-- The key expires when the bucket is full again, because a full one needs no record.
-- May not: refuse to take tokens; read or write another key.

-- include lib/call.lua

local key = KEYS[1]
local caps, wanted = {tonumber(ARGV[1]), tonumber(ARGV[2])}, {tonumber(ARGV[3]), tonumber(ARGV[4])}
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local kept = call('HMGET', key, 'requests', 'tokens', 'at')
local passed = math.max(0, now - (tonumber(kept[3]) or 0)) -- a clock that was set back fills nothing
local levels, wait = {}, 0
for i, cap in ipairs(caps) do
  local level = tonumber(kept[i]) or cap
  levels[i] = math.min(cap, level + cap * passed / 60000)
  local least = i == 1 and wanted[1] or 1
  if cap > 0 and wanted[1] > 0 and levels[i] < least then
    wait = math.max(wait, math.ceil((least - levels[i]) * 60000 / cap))
  end
end
if wait > 0 then return wait end
local full = 0
for i, cap in ipairs(caps) do
  if cap > 0 then
    levels[i] = levels[i] - wanted[i]
    full = math.max(full, math.ceil((cap - levels[i]) * 60000 / cap))
  end
end
if full > 0 then
  call('HSET', key, 'requests', string.format('%.6f', levels[1]), 'tokens', string.format('%.6f', levels[2]), 'at', string.format('%.0f', now))
  call('PEXPIRE', key, string.format('%.0f', full))
end
return 0
