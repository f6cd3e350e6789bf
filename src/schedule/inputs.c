/* One scanner for both passes: the first only counts, so its count is exactly what the second writes. The bytes between
 * two escapes are copied as one run. */
#include "schedule/inputs.h"

#include <stdbool.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

struct scanner {
    struct lexer lexer;
    const char *valid_end; /* valid UTF-8 up to here */
    char *copy;            /* where decoded bytes go; NULL while measuring */
    size_t copied;
    struct row *rows; /* NULL while measuring */
};

static void put_bytes(struct scanner *scanner, const void *bytes, size_t length)
{
    if (scanner->copy) { memcpy(scanner->copy + scanner->copied, bytes, length); }
    scanner->copied += length;
}

/* Reads the rest of an escape after its backslash. */
static enum inputs_problem scan_escape(struct scanner *scanner)
{
    char utf8[4];
    size_t length;
    enum json_escape escape = lexer_read_escape(&scanner->lexer, utf8, &length);
    if (escape != JSON_ESCAPE_OK) { return escape == JSON_ESCAPE_HALF ? INPUTS_BAD_UTF8 : INPUTS_BAD_STRING; }
    put_bytes(scanner, utf8, length);
    return INPUTS_OK;
}

/* Reads one string, from after its opening quote. */
static enum inputs_problem scan_input_string(struct scanner *scanner)
{
    struct lexer *lexer = &scanner->lexer;
    for (;;) {
        const char *run = lexer->at;
        lexer_skip_plain(lexer);
        if (lexer->at > scanner->valid_end) {
            lexer->at = scanner->valid_end;
            return INPUTS_BAD_UTF8;
        }
        put_bytes(scanner, run, (size_t)(lexer->at - run));
        if (lexer_take(lexer, '"')) { return INPUTS_OK; }
        if (!lexer_take(lexer, '\\')) { return INPUTS_BAD_STRING; }
        enum inputs_problem problem = scan_escape(scanner);
        if (problem != INPUTS_OK) { return problem; }
    }
}

/* Returns whether a JSON value seems to begin here. */
static bool begins_value(const struct scanner *scanner)
{
    static const char *const words[] = {"true", "false", "null"};
    size_t left = (size_t)(scanner->lexer.end - scanner->lexer.at);
    bool begins = left > 0 && memchr("{[\"-0123456789", *scanner->lexer.at, 14);
    for (size_t i = 0; i < sizeof words / sizeof words[0] && !begins; i++) {
        begins = left >= strlen(words[i]) && memcmp(scanner->lexer.at, words[i], strlen(words[i])) == 0;
    }
    return begins;
}

static enum inputs_problem scan_text(struct scanner *scanner, uint32_t index)
{
    size_t before = scanner->copied;
    lexer_skip_space(&scanner->lexer);
    if (!lexer_take(&scanner->lexer, '"')) { return begins_value(scanner) ? INPUTS_NOT_TEXT : INPUTS_NOT_JSON; }
    enum inputs_problem problem = scan_input_string(scanner);
    if (problem == INPUTS_OK && scanner->copied == before) { return INPUTS_EMPTY_TEXT; }
    if (problem == INPUTS_OK && scanner->rows) {
        scanner->rows[index].text = scanner->copy + before;
        scanner->rows[index].text_bytes = (uint32_t)(scanner->copied - before);
    }
    return problem;
}

/* Reads the texts up to the closing bracket. */
static enum inputs_problem scan_texts(struct scanner *scanner, struct inputs *inputs, uint32_t most_texts,
                                      size_t most_bytes)
{
    for (;;) {
        if (inputs->count == most_texts) { return INPUTS_TOO_MANY; }
        enum inputs_problem problem = scan_text(scanner, inputs->count);
        if (problem != INPUTS_OK) { return problem; }
        if (scanner->copied > most_bytes) { return INPUTS_TOO_LARGE; }
        inputs->count++;
        lexer_skip_space(&scanner->lexer);
        if (lexer_take(&scanner->lexer, ']')) { return INPUTS_OK; }
        if (!lexer_take(&scanner->lexer, ',')) { return INPUTS_NOT_JSON; }
    }
}

static enum inputs_problem scan_inputs(struct scanner *scanner, struct inputs *inputs, uint32_t most_texts,
                                       size_t most_bytes)
{
    lexer_skip_space(&scanner->lexer);
    if (!lexer_take(&scanner->lexer, '[')) { return begins_value(scanner) ? INPUTS_NOT_ARRAY : INPUTS_NOT_JSON; }
    lexer_skip_space(&scanner->lexer);
    bool empty = lexer_take(&scanner->lexer, ']');
    enum inputs_problem problem = empty ? INPUTS_NO_TEXTS : scan_texts(scanner, inputs, most_texts, most_bytes);
    if (problem != INPUTS_OK && problem != INPUTS_NO_TEXTS) { return problem; }
    lexer_skip_space(&scanner->lexer);
    return scanner->lexer.at == scanner->lexer.end ? problem : INPUTS_NOT_JSON;
}

struct inputs inputs_measure(const char *json, size_t length, uint32_t most_texts, size_t most_bytes)
{
    struct scanner scanner = {.lexer = {json, json + length}, .valid_end = json + utf8_valid_prefix(json, length)};
    struct inputs inputs = {0};
    inputs.problem = scan_inputs(&scanner, &inputs, most_texts, most_bytes);
    inputs.bytes = scanner.copied;
    inputs.at = (size_t)(scanner.lexer.at - json);
    return inputs;
}

void inputs_decode(const char *json, size_t length, char *copy, struct row *rows)
{
    struct scanner scanner = {.lexer = {json, json + length}, .valid_end = json + length, .copy = copy, .rows = rows};
    struct inputs inputs = {0};
    inputs.problem = scan_inputs(&scanner, &inputs, UINT32_MAX, SIZE_MAX);
}
