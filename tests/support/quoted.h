/* JSON in the sources of tests. */
#ifndef TESTS_QUOTED_H
#define TESTS_QUOTED_H

#include "harness.h"

/* The text with a " for each '; the caller may change it, until the fourth call after this one. */
static inline char *quoted(const char *text)
{
    static char texts[4][4096];
    static unsigned next;
    char *to = texts[next++ % 4];
    assert_true(strlen(text) < sizeof texts[0]);
    strcpy(to, text);
    for (char *at = to; (at = strchr(at, '\'')) != NULL;) { *at = '"'; }
    return to;
}

#endif
