/* A line of a file with API keys: a key that is accepted has a name, a tenant and limits within their bounds. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "fuzz.h"
#include "gateway/keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct key key;
    struct err err;
    char *line = malloc(size + 1);
    memcpy(line, data, size);
    if (key_parse(line, size, &key, &err) == STATUS_OK) {
        FUZZ_CHECK(json_valid(line, size));
        FUZZ_CHECK(key_name_is(key.facts.name) && key_name_is(key.facts.tenant));
        FUZZ_CHECK(key.facts.requests <= KEY_LIMIT_MOST && key.facts.tokens <= KEY_LIMIT_MOST);
        FUZZ_CHECK(key.facts.texts <= KEY_LIMIT_MOST);
        FUZZ_CHECK(key.queues.length == 0 || (key.queues.length > 2 && key.queues.data[0] == ','));
    } else {
        FUZZ_CHECK(err.message[0] != '\0');
    }
    buffer_free(&key.queues);
    free(line);
    return 0;
}
