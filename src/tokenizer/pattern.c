/* Source: the regexes themselves, as Oniguruma matches them in tokenizers 0.23: the first alternative that matches
 * counts, and each takes as much as it can. */
#include "tokenizer/pattern.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

#define CONTRACTIONS "'s|'t|'re|'ve|'m|'ll|'d"
#define SPACES "\\s+(?!\\S)|\\s+"

const char pattern_gpt2[] = CONTRACTIONS "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" SPACES;

/* The later ones differ from each other only in the number of digits of a number. */
#define LATER(letters, numbers, others, lines)                                                                         \
    "(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]" letters "\\p{L}+|\\p{N}" numbers "| ?[^\\s\\p{L}\\p{N}]" others      \
    "[\\r\\n]*|\\s*[\\r\\n]" lines "|" SPACES

const char pattern_qwen2[] = LATER("?", "", "+", "+"); /* and Qwen3's */

/* The possessive quantifiers of cl100k match as the others do, because the characters after them are not in their
 * class; its `\s*[\r\n]` also ends after the last line end. */
static const struct known {
    const char *regex;
    uint8_t most_digits; /* of a piece; 0: GPT-2's regex */
} known_patterns[] = {
    {pattern_gpt2, 0},
    {pattern_qwen2, 1},
    {LATER("?", "{1,3}", "+", "+"), 3},  /* Llama 3 */
    {LATER("?+", "{1,3}", "++", ""), 3}, /* cl100k */
};

/* The classes of characters that the regexes distinguish. */
enum { OTHER, LETTER, NUMBER, SPACE, END, TABLE = 0x10000 };

struct pattern {
    enum { GPT2, LATER_REGEX, DIGITS } scanner;
    uint8_t most_digits;        /* DIGITS: 0 is any number */
    uint8_t classes[TABLE / 4]; /* two bits for each character below U+10000 */
};

static unsigned int class_of_flags(uint8_t flags)
{
    return flags & UNICODE_SPACE ? SPACE : flags & UNICODE_LETTER ? LETTER : flags & UNICODE_NUMBER ? NUMBER : OTHER;
}

static enum status make_pattern(uint8_t most_digits, struct pattern **out, struct err *err)
{
    struct pattern *pattern = calloc(1, sizeof *pattern);
    *out = pattern;
    if (!pattern) { return err_set(err, STATUS_NO_MEMORY, "no memory for a regex"); }
    pattern->most_digits = most_digits;
    for (uint32_t c = 0; c < TABLE; c++) {
        pattern->classes[c / 4] |= (uint8_t)(class_of_flags(unicode_lookup(c)->flags) << c % 4 * 2);
    }
    return STATUS_OK;
}

enum status pattern_open(const char *regex, struct pattern **out, struct err *err)
{
    const size_t count = sizeof known_patterns / sizeof known_patterns[0];
    size_t which = 0;
    *out = NULL;
    while (which < count && strcmp(regex, known_patterns[which].regex) != 0) { which++; }
    if (which == count) { return err_set(err, STATUS_UNSUPPORTED, "the regex %.300s is not supported", regex); }
    TRY(make_pattern(known_patterns[which].most_digits, out, err));
    (*out)->scanner = (*out)->most_digits == 0 ? GPT2 : LATER_REGEX;
    return STATUS_OK;
}

enum status pattern_open_digits(bool individual, struct pattern **out, struct err *err)
{
    TRY(make_pattern(individual, out, err));
    (*out)->scanner = DIGITS;
    return STATUS_OK;
}

void pattern_close(struct pattern *pattern)
{
    free(pattern);
}

/* The class of the character at `at`, END after the last one. `*next` becomes the character's end. */
static unsigned int class_at(const struct pattern *pattern, const char *text, size_t length, size_t at, size_t *next)
{
    *next = at;
    if (at >= length) { return END; }
    uint32_t c = (unsigned char)text[at] < 0x80 ? (unsigned char)text[(*next)++] : utf8_next(text, next);
    return c < TABLE ? pattern->classes[c / 4] >> c % 4 * 2 & 3 : class_of_flags(unicode_lookup(c)->flags);
}

/* The end of the characters of a class that begin at `at`; there may be none. */
static size_t run_end(const struct pattern *pattern, const char *text, size_t length, size_t at, unsigned int class)
{
    size_t next = at;
    while (class_at(pattern, text, length, at, &next) == class) { at = next; }
    return at;
}

static bool is_line_end(char c)
{
    return c == '\r' || c == '\n';
}

/* The letter in lower case; characters that match an s case-insensitively count as s. Otherwise the byte itself. */
static char contraction_letter(const char *text, size_t length, size_t at, bool any_case, size_t *next)
{
    *next = at + 1;
    if (at >= length) { return '\0'; }
    if (any_case && text[at] >= 'A' && text[at] <= 'Z') { return (char)(text[at] | 0x20); }
    if (any_case && length - at > 1 && memcmp(text + at, "\xC5\xBF", 2) == 0) { /* U+017F, long s */
        *next = at + 2;
        return 's';
    }
    return text[at];
}

/* The end of the contraction after the apostrophe at `at`; `at` if there is none. */
static size_t contraction_end(const char *text, size_t length, size_t at, bool any_case)
{
    size_t behind, last;
    char first = contraction_letter(text, length, at + 1, any_case, &behind);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') { return behind; }
    char second = contraction_letter(text, length, behind, any_case, &last);
    bool two = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
    return two ? last : at;
}

/* `\s+(?!\S)|\s+`: white space except the last character before other text, unless that character is all. */
static size_t space_end(const struct pattern *pattern, const char *text, size_t length, size_t at)
{
    size_t end = run_end(pattern, text, length, at, SPACE), last = end;
    if (end == length) { return end; }
    do {
        last--;
    } while (((unsigned char)text[last] & 0xC0) == 0x80);
    return last > at ? last : end;
}

static size_t next_gpt2(const struct pattern *pattern, const char *text, size_t length, size_t at)
{
    if (text[at] == '\'') {
        size_t end = contraction_end(text, length, at, false);
        if (end > at) { return end; }
    }
    size_t next, behind;
    unsigned int class = class_at(pattern, text, length, at, &next);
    if (text[at] == ' ') {
        unsigned int second = class_at(pattern, text, length, next, &behind);
        if (second != SPACE && second != END) { return run_end(pattern, text, length, behind, second); }
    }
    return class == SPACE ? space_end(pattern, text, length, at) : run_end(pattern, text, length, next, class);
}

/* `\s*[\r\n]+|\s+(?!\S)|\s+`: up to the last line end, if there is one. */
static size_t lines_end(const struct pattern *pattern, const char *text, size_t length, size_t at)
{
    size_t end = run_end(pattern, text, length, at, SPACE);
    while (end > at && !is_line_end(text[end - 1])) { end--; }
    return end > at ? end : space_end(pattern, text, length, at);
}

/* Signs and the line ends after them. */
static size_t signs_end(const struct pattern *pattern, const char *text, size_t length, size_t at)
{
    at = run_end(pattern, text, length, at, OTHER);
    while (at < length && is_line_end(text[at])) { at++; }
    return at;
}

static size_t digits_end(const struct pattern *pattern, const char *text, size_t length, size_t at)
{
    size_t next;
    for (uint8_t i = 0; i < pattern->most_digits; i++) {
        if (class_at(pattern, text, length, at, &next) != NUMBER) { break; }
        at = next;
    }
    return at;
}

static size_t next_later(const struct pattern *pattern, const char *text, size_t length, size_t at)
{
    if (text[at] == '\'') {
        size_t end = contraction_end(text, length, at, true);
        if (end > at) { return end; }
    }
    size_t next, behind;
    unsigned int class = class_at(pattern, text, length, at, &next);
    if (class == LETTER) { return run_end(pattern, text, length, next, LETTER); }
    if (class == NUMBER) { return digits_end(pattern, text, length, at); }
    unsigned int second = class_at(pattern, text, length, next, &behind);
    if (second == LETTER && !is_line_end(text[at])) { return run_end(pattern, text, length, behind, LETTER); }
    if (class == OTHER) { return signs_end(pattern, text, length, next); }
    if (text[at] == ' ' && second == OTHER) { return signs_end(pattern, text, length, behind); }
    return lines_end(pattern, text, length, at);
}

/* Digits knows more numbers than the regexes do: those of Unicode 17. */
static bool is_number_at(const struct pattern *pattern, const char *text, size_t length, size_t at, size_t *next)
{
    if (class_at(pattern, text, length, at, next) == NUMBER) { return true; }
    if (*next - at != 4) { return false; }
    size_t end = at;
    uint32_t c = utf8_next(text, &end);
    return (c >= 0x11DE0 && c <= 0x11DE9) || (c >= 0x16FF4 && c <= 0x16FF6);
}

static size_t next_digits(const struct pattern *pattern, const char *text, size_t length, size_t at)
{
    size_t next = at;
    bool number = is_number_at(pattern, text, length, at, &next);
    do {
        at = next;
    } while (at < length && !(number && pattern->most_digits == 1) &&
             is_number_at(pattern, text, length, at, &next) == number);
    return at;
}

size_t pattern_next(const struct pattern *pattern, const char *text, size_t length, size_t at)
{
    switch (pattern->scanner) {
    case GPT2:
        return next_gpt2(pattern, text, length, at);
    case LATER_REGEX:
        return next_later(pattern, text, length, at);
    case DIGITS:
        return next_digits(pattern, text, length, at);
    }
    return length;
}
