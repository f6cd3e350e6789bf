#include "base/edit_distance.h"

#include <stddef.h>
#include <string.h>

enum { LETTERS_MAX = 63 };

/* The classic table, one row at a time: row[j] is the distance from the letters of `a` so far to the first j of `b`. */
unsigned edit_distance(const char *a, const char *b)
{
    unsigned row[LETTERS_MAX + 1];
    size_t width = strnlen(b, LETTERS_MAX);
    for (size_t j = 0; j <= width; j++) { row[j] = (unsigned)j; }
    for (size_t i = 0; i < LETTERS_MAX && a[i] != '\0'; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i + 1;
        for (size_t j = 0; j < width; j++) {
            unsigned replaced = diagonal + (a[i] != b[j]);
            unsigned shifted = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;
            diagonal = row[j + 1];
            row[j + 1] = replaced < shifted ? replaced : shifted;
        }
    }
    return row[width];
}
