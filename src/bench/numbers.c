#include "bench/numbers.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static enum status add(const char *option, struct numbers *out, int64_t number, struct err *err)
{
    if (out->count == NUMBERS_MAX)
        return err_set(err, STATUS_BAD_INPUT, "%s takes at most %d values", option, NUMBERS_MAX);
    out->items[out->count++] = number;
    return STATUS_OK;
}

enum status numbers_parse(const char *option, const char *text, int64_t least, int64_t most, struct numbers *out,
                          struct err *err)
{
    out->count = 0;
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        long long number = isdigit((unsigned char)*at) ? strtoll(at, &end, 10) : -1;
        if (!isdigit((unsigned char)*at) || errno != 0 || number < least || number > most ||
            (*end != ',' && *end != '\0'))
            return err_set(err, STATUS_BAD_INPUT,
                           "%s must be whole numbers from %lld to %lld with commas, not \"%.80s\"", option,
                           (long long)least, (long long)most, text);
        TRY(add(option, out, number, err));
        at = end;
        if (*at == '\0')
            return STATUS_OK;
    }
}

enum status numbers_parse_words(const char *option, const char *text, const char *const *known, struct numbers *out,
                                struct err *err)
{
    out->count = 0;
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ","), word = 0;
        while (known[word] != NULL && (strlen(known[word]) != length || memcmp(known[word], at, length) != 0))
            word++;
        if (known[word] == NULL)
            return err_set(err, STATUS_BAD_INPUT, "%s does not know \"%.*s\"; the first of its words is %s", option,
                           length > 80 ? 80 : (int)length, at, known[0]);
        TRY(add(option, out, (int64_t)word, err));
        at += length;
        if (*at == '\0')
            return STATUS_OK;
    }
}
