/* Any bytes as a name that somebody else has chosen: as text and as a string of JSON they are valid, on one line where
 * that is promised, and mean the same, whichever function writes them. */
#include <string.h>

#include "base/buffer.h"
#include "base/json.h"
#include "base/utf8.h"
#include "fuzz.h"

/* The string between the quotes means this text. */
static void check_string(const char *json, size_t length, const struct buffer *text)
{
    struct buffer decoded = {0};
    FUZZ_CHECK(json_valid(json, length) && length >= 2 && json[0] == '"');
    FUZZ_CHECK(buffer_json_decode(&decoded, json + 1, length - 2));
    FUZZ_CHECK(decoded.length == text->length);
    FUZZ_CHECK(text->length == 0 || memcmp(decoded.data, text->data, text->length) == 0);
    buffer_free(&decoded);
}

static void check_line(const char *line, size_t length)
{
    for (size_t at = 0, size; at < length; at += size) {
        size = line[at] == '\\' ? 1 : utf8_printable(line + at, length - at);
        FUZZ_CHECK(size > 0);
    }
}

/* A C string in a buffer that is `more` larger: as much of the text as there is room for. */
static void check_mended(const char *bytes, size_t length, size_t more, const struct buffer *text)
{
    size_t until = length > 0 && memchr(bytes, '\0', length) ? strlen(bytes) : length;
    char *copy = calloc(until + 1 + more, 1);
    FUZZ_CHECK(copy != NULL);
    memcpy(copy, bytes, until);
    utf8_mend(copy, until + 1 + more);
    size_t mended = strlen(copy);
    FUZZ_CHECK(mended <= until + more && utf8_valid(copy, mended));
    FUZZ_CHECK(mended <= text->length && memcmp(copy, text->data ? text->data : "", mended) == 0);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 1u << 16) { return 0; }
    const char *bytes = (const char *)data + 1;
    struct buffer text = {0}, json = {0}, line = {0};
    buffer_utf8(&text, bytes, size - 1);
    FUZZ_CHECK(buffer_ok(&text) && (text.length == 0 || utf8_valid(text.data, text.length)));
    buffer_json_string(&json, bytes, size - 1);
    check_string(json.data, json.length, &text);
    buffer_json(&line, "%.*s", (int)size - 1, bytes);
    check_string(line.data, line.length, &text);
    check_line(line.data, line.length);
    check_mended(bytes, size - 1, data[0], &text);
    buffer_free(&line);
    buffer_free(&json);
    buffer_free(&text);
    return 0;
}
