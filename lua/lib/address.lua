-- Finds where the answer to a request goes, without the rest of the request.

local ADDRESS = {id = '^[ -~]+$', notify = '^[%l%d:_.%-]+$', stream = '^[%l%d_.%-]+$', ttl = '^%d+$',
                 tenant = '^[%w._:%-]+$', traceparent = '^[!-~]+$', tracestate = '^[ -~]+$'}
local ADDRESS_MOST = {id = 128, notify = 71, stream = 64, ttl = 6, tenant = 64, traceparent = 256, tracestate = 512}

-- Keeps the well-formed fields that say where the answer goes. `name` is the name under which the request came back, if it did.
local function address_of(fields, name)
  local kept, seen = {}, {}
  if name then kept = {'_id', name} end
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    if ADDRESS[field] and not seen[field] and #value <= ADDRESS_MOST[field] and string.find(value, ADDRESS[field]) then
      seen[field] = true
      kept[#kept + 1] = field
      kept[#kept + 1] = value
    end
  end
  return kept
end
