/* Any bytes as a file of JSON: sniff says what they are, or nothing; an array that is valid gives as many documents as
 * it has elements; any other ends with a message, or with rows that failed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/json.h"
#include "base/utf8.h"
#include "bulk/input/json.h"
#include "bulk/input/sniff.h"
#include "bulk/input/source.h"
#include "fuzz.h"

/* A path that names these bytes. */
static char *file_of(const uint8_t *data, size_t size)
{
    static char path[40];
    static int fd = -1;
    if (fd < 0) { fd = memfd_create("fuzz", MFD_CLOEXEC); }
    FUZZ_CHECK(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return path;
}

/* The elements of a valid array. */
static size_t count_elements(const char *bytes, size_t length)
{
    struct lexer lexer = {bytes, bytes + length};
    size_t count = 0;
    lexer_skip_space(&lexer);
    FUZZ_CHECK(lexer_take(&lexer, '['));
    lexer_skip_space(&lexer);
    if (lexer_take(&lexer, ']')) { return 0; }
    do {
        FUZZ_CHECK(lexer_value(&lexer, 1));
        lexer_skip_space(&lexer);
        count++;
    } while (lexer_take(&lexer, ','));
    return count;
}

static void scan_parts(const char *bytes, size_t size)
{
    struct element_scan whole = {0}, parts = {0};
    size_t length = element_scan(&whole, bytes, size);
    size_t used = element_scan(&parts, bytes, size / 2);
    used += element_scan(&parts, bytes + used, size - used);
    FUZZ_CHECK(length <= size && used == length && parts.done == whole.done && parts.lines == whole.lines);
}

static void read_all(const uint8_t *data, size_t size, enum sniffed kind)
{
    struct recipe recipe;
    struct source *source;
    struct err err = {0};
    struct document document;
    struct recipe_options fields = {.keep = "a"};
    char *path = file_of(data, size);
    FUZZ_CHECK(recipe_open(&recipe, &fields, &err) == STATUS_OK);
    struct source_options options = {
        .operands = &path, .operand_count = 1, .format = FORMAT_JSONL, .recipe = &recipe, .max_text_bytes = 1000};
    FUZZ_CHECK(source_open(&options, &source, &err) == STATUS_OK);
    size_t documents = 0;
    bool more = true;
    enum status status;
    while ((status = source_next(source, &document, &more, &err)) == STATUS_OK && more) {
        FUZZ_CHECK((document.code == ROW_OK) == (document.message_bytes == 0) && document.line > 0);
        if (document.code == ROW_OK) { FUZZ_CHECK(utf8_valid(document.text, document.text_bytes)); }
        FUZZ_CHECK(++documents <= size);
    }
    FUZZ_CHECK(status == STATUS_OK || (status == STATUS_BAD_INPUT && err.message[0] == '/'));
    const char *bytes = (const char *)data;
    if (kind == SNIFF_JSON_ARRAY && json_valid(bytes, size)) {
        FUZZ_CHECK(status == STATUS_OK && documents == count_elements(bytes, size));
    }
    source_close(source);
    recipe_close(&recipe);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *name = NULL, *way = NULL;
    if (size == 0 || size > 1 << 14) { return 0; }
    bool packed = data[0] == 0x1f || data[0] == 0x28 || (data[0] & 0xf0) == 0x50; /* other bytes come out of it */
    enum sniffed kind = sniff((const char *)data, size < SNIFF_BYTES ? size : SNIFF_BYTES, &name, &way);
    FUZZ_CHECK((kind == SNIFF_OTHER) == (name != NULL) && (name == NULL) == (way == NULL));
    scan_parts((const char *)data, size);
    if (!packed) { read_all(data, size, kind); }
    return 0;
}
