-- Calls of commands. Inside a script a missing right has no error code of its own, and servers word it differently, so this
-- asks the server whether the caller has the right. An error that is raised here names the command and its key, and begins with
-- NOPERM if a right is missing.

local function named(...)
  local text = ''
  for _, word in ipairs({...}) do
    text = text .. ' ' .. word
    if string.find(word, '^sluice:') then break end
  end
  return text
end

-- Stops the script unless the caller may run this command.
local function need(...)
  if not redis.acl_check_cmd(...) then error(redis.error_reply('NOPERM the user may not' .. named(...))) end
end

local function fail(result, ...)
  need(...)
  error(redis.error_reply(result.err .. ':' .. named(...)))
end

-- Each use of a global costs a look-up.
local command, type = redis.pcall, type

local function call(...)
  local result = command(...)
  if type(result) == 'table' and result.err then fail(result, ...) end
  return result
end

-- Returns an error instead of raising it, but still raises NOPERM if a right is missing.
local function try(...)
  local result = command(...)
  if type(result) == 'table' and result.err then need(...) end
  return result
end
