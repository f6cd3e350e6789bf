/* The form of W3C Trace Context's two headers. Source: https://www.w3.org/TR/trace-context/ */
#include "schedule/trace_context.h"

#include <string.h>

/* Returns whether these are `count` lower-case hex digits that are not all 0 if they are an id. */
static bool is_hex(const char *text, size_t count, bool id)
{
    size_t digits = 0, zeros = 0;
    for (; digits < count && memchr("0123456789abcdef", text[digits], 16); digits++) { zeros += text[digits] == '0'; }
    return digits == count && (!id || zeros < count);
}

bool is_traceparent(const char *text, size_t length)
{
    enum { LENGTH = 55 };
    bool shaped = length >= LENGTH && length <= TRACEPARENT_MAX_BYTES && is_hex(text, 2, false) && text[2] == '-' &&
                  is_hex(text + 3, 32, true) && text[35] == '-' && is_hex(text + 36, 16, true) && text[52] == '-' &&
                  is_hex(text + 53, 2, false) && memcmp(text, "ff", 2) != 0;
    for (size_t i = LENGTH; shaped && i < length; i++) { shaped = text[i] > ' ' && text[i] <= '~'; }
    return shaped && (length == LENGTH || (memcmp(text, "00", 2) != 0 && text[LENGTH] == '-'));
}

/* Checks for key=value, or nothing. */
static bool is_tracestate_member(const char *text, size_t length)
{
    static const char key[] = "abcdefghijklmnopqrstuvwxyz0123456789_-*/@";
    const char *equals = memchr(text, '=', length);
    if (length == 0) { return true; }
    if (!equals || equals == text || equals - text > 256 || equals + 1 == text + length) { return false; }
    for (const char *at = text; at < equals; at++) {
        if (!memchr(key, *at, sizeof key - 1)) { return false; }
    }
    for (const char *at = equals + 1; at < text + length; at++) {
        if (*at < ' ' || *at > '~' || *at == '=') { return false; }
    }
    return memchr("abcdefghijklmnopqrstuvwxyz0123456789", text[0], 36) != NULL;
}

bool is_tracestate(const char *text, size_t length)
{
    enum { MEMBERS_MAX = 32 };
    const char *end = text + length;
    size_t members = 0;
    for (const char *at = text; at <= end; members++) {
        const char *comma = memchr(at, ',', (size_t)(end - at)), *last = comma ? comma : end;
        const char *next = last + 1;
        while (at < last && (*at == ' ' || *at == '\t')) { at++; }
        while (last > at && (last[-1] == ' ' || last[-1] == '\t')) { last--; }
        if (!is_tracestate_member(at, (size_t)(last - at))) { return false; }
        at = next;
    }
    return length > 0 && length <= TRACESTATE_MAX_BYTES && members <= MEMBERS_MAX;
}
