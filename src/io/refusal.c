#include "io/refusal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BEGINS "\nsluice:{" /* a key, behind the line that holds its length */
#define LINE_MARK "@user_script:"

static bool contains(const struct resp_value *reply, const char *words)
{
    return reply->type == RESP_ERROR && memmem(reply->bytes, reply->length, words, strlen(words)) != NULL;
}

static const struct resp_value *as_error(const char *text, struct resp_value *explained)
{
    *explained = (struct resp_value){.type = RESP_ERROR, .bytes = text, .length = strlen(text)};
    return explained;
}

const struct resp_value *refusal_with_keys(const struct resp_value *reply, const char *head, size_t length,
                                           char text[REFUSAL_TEXT], struct resp_value *explained)
{
    if (!contains(reply, "permissions to access one of the keys")) {
        return reply;
    }
    int used = snprintf(text, REFUSAL_TEXT, "%.*s:", (int)(reply->length < 200 ? reply->length : 200), reply->bytes);
    const char *at = head, *end = head + length;
    while (used < REFUSAL_TEXT && (at = memmem(at, (size_t)(end - at), KEY_BEGINS, strlen(KEY_BEGINS)))) {
        at++;
        const char *stop = memchr(at, '\r', (size_t)(end - at));
        int size = (int)((stop ? stop : end) - at);
        used += snprintf(text + used, REFUSAL_TEXT - (size_t)used, " %.*s%s", size, at, stop ? "" : "...");
        at += size;
    }
    return as_error(text, explained);
}

const struct resp_value *refusal_with_line(const struct resp_value *reply, const char *name, const char *source,
                                           char text[REFUSAL_TEXT], struct resp_value *explained)
{
    const char *mark = contains(reply, "The user executing the script") ? strstr(reply->bytes, LINE_MARK) : NULL;
    long number = mark ? strtol(mark + strlen(LINE_MARK), NULL, 10) : 0;
    if (number < 1) {
        return reply;
    }
    const char *line = source;
    for (long i = 1; i < number && line; i++) {
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    line = line ? line + strspn(line, " \t") : "";
    /* Cut before the digest, which helps nobody. */
    const char *end = strstr(reply->bytes, " script: ");
    int words = (int)(end ? end - reply->bytes : (long)reply->length);
    snprintf(text, REFUSAL_TEXT, "%.*s: lua/%s.lua line %ld: %.*s", words < 200 ? words : 200, reply->bytes, name,
             number, (int)strcspn(line, "\n"), line);
    return as_error(text, explained);
}
