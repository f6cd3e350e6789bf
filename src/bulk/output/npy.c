/* A head is a magic number, a version, a length and a dictionary as Python writes it. Of Python only what NumPy puts
 * there is read: strings without escapes, True and False, and tuples of whole numbers. */
#include "bulk/output/npy.h"

#include <stdio.h>
#include <string.h>

static const char magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

void npy_header(char to[NPY_HEADER_BYTES], const char *type, uint64_t rows, uint32_t dim)
{
    static const char version[4] = {1, 0, NPY_HEADER_BYTES - 10, 0};
    char columns[16] = "";
    if (dim > 0)
        snprintf(columns, sizeof columns, " %u", dim);
    memset(to, ' ', NPY_HEADER_BYTES);
    memcpy(to, magic, sizeof magic);
    memcpy(to + sizeof magic, version, sizeof version);
    int used = snprintf(to + 10, NPY_HEADER_BYTES - 10, "{'descr': '%s', 'fortran_order': False, 'shape': (%llu,%s), }",
                        type, (unsigned long long)rows, columns);
    to[10 + used] = ' ';
    to[NPY_HEADER_BYTES - 1] = '\n';
}

struct cursor {
    const char *at, *end;
};

static void skip_blanks(struct cursor *cursor)
{
    while (cursor->at < cursor->end && (*cursor->at == ' ' || *cursor->at == '\n' || *cursor->at == '\t'))
        cursor->at++;
}

/* Takes a character if it comes next, behind blanks. */
static bool take(struct cursor *cursor, char wanted)
{
    skip_blanks(cursor);
    if (cursor->at == cursor->end || *cursor->at != wanted)
        return false;
    cursor->at++;
    return true;
}

static bool take_string(struct cursor *cursor, char *to, size_t size)
{
    char quote = take(cursor, '\'') ? '\'' : take(cursor, '"') ? '"' : '\0';
    const char *begin = cursor->at;
    if (quote == '\0')
        return false;
    while (cursor->at < cursor->end && *cursor->at != quote && *cursor->at != '\\')
        cursor->at++;
    size_t length = (size_t)(cursor->at - begin);
    if (length >= size || !take(cursor, quote))
        return false;
    memcpy(to, begin, length);
    to[length] = '\0';
    return true;
}

static bool take_bool(struct cursor *cursor, bool *out)
{
    *out = take(cursor, 'T');
    if (!*out && !take(cursor, 'F'))
        return false;
    const char *rest = *out ? "rue" : "alse";
    size_t length = strlen(rest);
    if ((size_t)(cursor->end - cursor->at) < length || memcmp(cursor->at, rest, length) != 0)
        return false;
    cursor->at += length;
    return true;
}

static bool take_number(struct cursor *cursor, uint64_t *out)
{
    skip_blanks(cursor);
    const char *begin = cursor->at;
    for (*out = 0; cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9'; cursor->at++) {
        unsigned digit = (unsigned)(*cursor->at - '0');
        if (*out > (UINT64_MAX - digit) / 10)
            return false;
        *out = *out * 10 + digit;
    }
    return cursor->at > begin;
}

static bool take_shape(struct cursor *cursor, struct npy *out)
{
    if (!take(cursor, '('))
        return false;
    bool more = true; /* a comma came before, or nothing */
    for (out->dimensions = 0; !take(cursor, ')'); out->dimensions++) {
        if (!more || out->dimensions == NPY_DIMENSIONS_MAX || !take_number(cursor, &out->shape[out->dimensions]))
            return false;
        more = take(cursor, ',');
    }
    return true;
}

/* {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } in any order; every key once. */
static bool take_head(struct cursor *cursor, struct npy *out)
{
    enum { DESCR = 1, ORDER = 2, SHAPE = 4 };
    unsigned seen = 0;
    bool more = true;
    if (!take(cursor, '{'))
        return false;
    while (!take(cursor, '}')) {
        char key[16];
        unsigned this = 0;
        if (!more || !take_string(cursor, key, sizeof key) || !take(cursor, ':'))
            return false;
        if (strcmp(key, "descr") == 0 && take_string(cursor, out->type, sizeof out->type))
            this = DESCR;
        else if (strcmp(key, "shape") == 0 && take_shape(cursor, out))
            this = SHAPE;
        else if (strcmp(key, "fortran_order") == 0)
            this = take_bool(cursor, &out->fortran) ? ORDER : 0;
        if (this == 0 || (seen & this) != 0)
            return false;
        seen |= this;
        more = take(cursor, ',');
    }
    return seen == (DESCR | ORDER | SHAPE);
}

static uint32_t little(const char *from, unsigned bytes)
{
    uint32_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint32_t)(unsigned char)from[i] << (8 * i);
    return value;
}

enum status npy_read(const char *bytes, size_t length, const char *name, struct npy *out, struct err *err)
{
    *out = (struct npy){0};
    if (length < 12 || memcmp(bytes, magic, sizeof magic) != 0)
        return err_set(err, STATUS_BAD_INPUT, "%s is not an .npy file", name);
    unsigned char version = (unsigned char)bytes[6];
    if (version < 1 || version > 3)
        return err_set(err, STATUS_BAD_INPUT, "%s has version %u of the .npy format, which is not known", name,
                       version);
    size_t begin = version == 1 ? 10 : 12;
    uint32_t size = little(bytes + 8, version == 1 ? 2 : 4);
    if (size > NPY_HEADER_MOST - begin)
        return err_set(err, STATUS_BAD_INPUT, "%s: its head has %u bytes, more than is read", name, size);
    if (size > length - begin)
        return err_set(err, STATUS_BAD_INPUT, "%s ends within its head", name);
    struct cursor cursor = {bytes + begin, bytes + begin + size};
    if (!take_head(&cursor, out))
        return err_set(err, STATUS_BAD_INPUT, "%s: its head is not that of an array of plain numbers", name);
    out->data = begin + size;
    return STATUS_OK;
}
