#!lua
-- Submits a dead letter again: a new request, with the fields and the class of the old one.
--
-- KEYS  1 dead, 2 requests:high, 3 requests, 4 requests:low
-- ARGV  1 id of the dead letter
-- Returns { 1, new entry id }, { 0 } when there is no such letter, { -1 } when it holds no fields to submit, { -2 } when it
-- holds only the beginning of them (`_cut`)
-- The new request keeps its `id`. Age and attempts restart; `delay` and `expires_in` are left out.
-- May not: remove the dead letter before the request is in its stream; submit one whose letter it may not remove; run when
-- Redis is out of memory (no allow-oom: this adds work).

-- include lib/call.lua

local dead, letter_id = KEYS[1], ARGV[1]
local STREAM = {['high:'] = KEYS[2], [''] = KEYS[3], ['low:'] = KEYS[4]}
local LEFT_OUT = {delay = true, expires_in = true}
local FIELDS_MAX = 4000 -- strings; unpack takes somewhat more

need('XDEL', dead, letter_id)
local letter = call('XRANGE', dead, letter_id, letter_id)[1]
if not letter then return {0} end
local body, name, was_cut = {}, '', false

local function keep(fields)
  for i = 1, #fields - 1, 2 do
    local field, value = fields[i], fields[i + 1]
    if field == '_entry' then name = value end
    if field == '_cut' then was_cut = true end
    if string.sub(field, 1, 1) ~= '_' and not LEFT_OUT[field] then
      body[#body + 1] = field
      body[#body + 1] = value
    elseif field == '_body' then
      local ok, packed = pcall(cmsgpack.unpack, value)
      if ok and type(packed) == 'table' then keep(packed) end
    end
  end
end

keep(letter[2])
if was_cut then return {-2} end
local stream = STREAM[string.match(name, '^(%l*:?)%d+%-%d+$') or '']
if #body == 0 or #body > FIELDS_MAX or not stream then return {-1} end
local id = call('XADD', stream, '*', unpack(body))
call('XDEL', dead, letter_id)
return {1, id}
