-- Streams of tokens (docs/protocol.md). The script has the piece call, and a function `side`, which gives nil for an error.

local function add_tokens(tokens, ...)
  side(try('XADD', tokens, '*', ...))
end

-- Keeps a stream of tokens for this many ms at least.
local function keep_tokens(tokens, ttl)
  if call('PTTL', tokens) < tonumber(ttl) then call('PEXPIRE', tokens, ttl) end
end
