/* One scanner for both passes: the first has nowhere to write, so what is counted is what is written. Everything
 * between two escapes is copied as one run. */
#include "schedule/inputs.h"

#include <stdbool.h>
#include <string.h>

#include "base/json_escape.h"
#include "base/utf8.h"

struct scanner {
    const unsigned char *at, *end;
    const unsigned char *valid_end; /* valid UTF-8 up to here */
    char *copy;                     /* where decoded bytes go; NULL while measuring */
    size_t copied;
    struct row *rows; /* likewise */
};

static void put(struct scanner *scanner, const void *bytes, size_t length)
{
    if (scanner->copy) {
        memcpy(scanner->copy + scanner->copied, bytes, length);
    }
    scanner->copied += length;
}

static void skip_space(struct scanner *scanner)
{
    while (scanner->at < scanner->end &&
           (*scanner->at == ' ' || *scanner->at == '\n' || *scanner->at == '\t' || *scanner->at == '\r')) {
        scanner->at++;
    }
}

static bool take(struct scanner *scanner, char expected)
{
    if (scanner->at == scanner->end || *scanner->at != (unsigned char)expected) {
        return false;
    }
    scanner->at++;
    return true;
}

/* What stands behind a backslash. */
static enum inputs_problem scan_escape(struct scanner *scanner)
{
    char utf8[4];
    size_t length;
    const char *at = (const char *)scanner->at;
    enum json_escape escape = json_escape_read(&at, (const char *)scanner->end, utf8, &length);
    scanner->at = (const unsigned char *)at;
    if (escape != JSON_ESCAPE_OK) {
        return escape == JSON_ESCAPE_HALF ? INPUTS_BAD_UTF8 : INPUTS_BAD_STRING;
    }
    put(scanner, utf8, length);
    return INPUTS_OK;
}

/* Whether eight bytes are plain: no quote, no backslash, no control character. The highest bit of a byte of `low` says
 * that it lay below the other operand; a borrow can only make plain bytes look suspicious behind one that is. */
static bool eight_plain(const unsigned char *bytes)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x80 * ones;
    uint64_t word;
    memcpy(&word, bytes, sizeof(word));
    uint64_t quote = word ^ '"' * ones, backslash = word ^ '\\' * ones;
    uint64_t low = ((word - ' ' * ones) & ~word) | ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash);
    return (low & tops) == 0;
}

/* Moves to the next byte that is not plain. */
static void skip_plain(struct scanner *scanner)
{
    const unsigned char *at = scanner->at, *end = scanner->end;
    while (end - at >= 8 && eight_plain(at)) {
        at += 8;
    }
    while (at < end && *at != '"' && *at != '\\' && *at >= ' ') {
        at++;
    }
    scanner->at = at;
}

/* One string, from behind its opening quote. */
static enum inputs_problem scan_string(struct scanner *scanner)
{
    for (;;) {
        const unsigned char *run = scanner->at;
        skip_plain(scanner);
        if (scanner->at > scanner->valid_end) {
            scanner->at = scanner->valid_end;
            return INPUTS_BAD_UTF8;
        }
        put(scanner, run, (size_t)(scanner->at - run));
        if (take(scanner, '"')) {
            return INPUTS_OK;
        }
        if (!take(scanner, '\\')) {
            return INPUTS_BAD_STRING;
        }
        enum inputs_problem problem = scan_escape(scanner);
        if (problem != INPUTS_OK) {
            return problem;
        }
    }
}

/* Whether a JSON value seems to begin here. */
static bool begins_value(const struct scanner *scanner)
{
    static const char *const words[] = {"true", "false", "null"};
    size_t left = (size_t)(scanner->end - scanner->at);
    bool begins = left > 0 && memchr("{[\"-0123456789", *scanner->at, 14);
    for (size_t i = 0; i < sizeof words / sizeof words[0] && !begins; i++) {
        begins = left >= strlen(words[i]) && memcmp(scanner->at, words[i], strlen(words[i])) == 0;
    }
    return begins;
}

static enum inputs_problem scan_text(struct scanner *scanner, uint32_t index)
{
    size_t before = scanner->copied;
    skip_space(scanner);
    if (!take(scanner, '"')) {
        return begins_value(scanner) ? INPUTS_NOT_TEXT : INPUTS_NOT_JSON;
    }
    enum inputs_problem problem = scan_string(scanner);
    if (problem == INPUTS_OK && scanner->copied == before) {
        return INPUTS_EMPTY_TEXT;
    }
    if (problem == INPUTS_OK && scanner->rows) {
        scanner->rows[index].text = scanner->copy + before;
        scanner->rows[index].text_bytes = (uint32_t)(scanner->copied - before);
    }
    return problem;
}

/* The texts up to the closing bracket. */
static enum inputs_problem scan_texts(struct scanner *scanner, struct inputs *inputs, uint32_t most_texts,
                                      size_t most_bytes)
{
    for (;;) {
        if (inputs->count == most_texts) {
            return INPUTS_TOO_MANY;
        }
        enum inputs_problem problem = scan_text(scanner, inputs->count);
        if (problem != INPUTS_OK) {
            return problem;
        }
        if (scanner->copied > most_bytes) {
            return INPUTS_TOO_LARGE;
        }
        inputs->count++;
        skip_space(scanner);
        if (take(scanner, ']')) {
            return INPUTS_OK;
        }
        if (!take(scanner, ',')) {
            return INPUTS_NOT_JSON;
        }
    }
}

static enum inputs_problem scan_array(struct scanner *scanner, struct inputs *inputs, uint32_t most_texts,
                                      size_t most_bytes)
{
    skip_space(scanner);
    if (!take(scanner, '[')) {
        return begins_value(scanner) ? INPUTS_NOT_ARRAY : INPUTS_NOT_JSON;
    }
    skip_space(scanner);
    bool empty = take(scanner, ']');
    enum inputs_problem problem = empty ? INPUTS_NO_TEXTS : scan_texts(scanner, inputs, most_texts, most_bytes);
    if (problem != INPUTS_OK && problem != INPUTS_NO_TEXTS) {
        return problem;
    }
    skip_space(scanner);
    return scanner->at == scanner->end ? problem : INPUTS_NOT_JSON;
}

struct inputs inputs_measure(const char *json, size_t length, uint32_t most_texts, size_t most_bytes)
{
    const unsigned char *start = (const unsigned char *)json;
    struct scanner scanner = {.at = start, .end = start + length, .valid_end = start + utf8_valid_prefix(json, length)};
    struct inputs inputs = {0};
    inputs.problem = scan_array(&scanner, &inputs, most_texts, most_bytes);
    inputs.bytes = scanner.copied;
    inputs.at = (size_t)(scanner.at - start);
    return inputs;
}

void inputs_decode(const char *json, size_t length, char *copy, struct row *rows)
{
    const unsigned char *start = (const unsigned char *)json;
    struct scanner scanner = {
        .at = start, .end = start + length, .valid_end = start + length, .copy = copy, .rows = rows};
    struct inputs inputs = {0};
    inputs.problem = scan_array(&scanner, &inputs, UINT32_MAX, SIZE_MAX);
}
