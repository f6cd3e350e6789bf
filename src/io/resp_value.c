/* What can be asked of a value that Redis sent, and a copy of it that outlives the reader. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "io/resp.h"

static size_t clone_size(const struct resp_value *value)
{
    size_t size = value->bytes ? value->length + 1 : 0;
    for (size_t i = 0; i < value->count; i++) {
        size += sizeof *value + clone_size(&value->items[i]);
    }
    return size;
}

/* Values go to the front of the block, bytes to its back, so that all values stay aligned. */
struct clone {
    struct resp_value *values;
    char *bytes;
};

static void clone_into(struct clone *clone, const struct resp_value *from, struct resp_value *to)
{
    *to = *from;
    if (from->bytes) {
        memcpy(clone->bytes, from->bytes, from->length + 1);
        to->bytes = clone->bytes;
        clone->bytes += from->length + 1;
    }
    if (from->count) {
        struct resp_value *items = clone->values;
        clone->values += from->count;
        to->items = items;
        for (size_t i = 0; i < from->count; i++) {
            clone_into(clone, &from->items[i], &items[i]);
        }
    }
}

static size_t count_values(const struct resp_value *value)
{
    size_t count = 1;
    for (size_t i = 0; i < value->count; i++) {
        count += count_values(&value->items[i]);
    }
    return count;
}

struct resp_value *resp_clone(const struct resp_value *value)
{
    struct resp_value *block = malloc(sizeof *value + clone_size(value));
    if (block) {
        struct clone clone = {block + 1, (char *)(block + count_values(value))};
        clone_into(&clone, value, block);
    }
    return block;
}

bool resp_is_error(const struct resp_value *value, const char *word)
{
    size_t length = strlen(word);
    return value->type == RESP_ERROR && value->length >= length && memcmp(value->bytes, word, length) == 0 &&
           (value->length == length || value->bytes[length] == ' ');
}

bool resp_equals(const struct resp_value *value, const char *text)
{
    size_t length = strlen(text);
    return (value->type == RESP_STRING || value->type == RESP_STATUS) && value->length == length &&
           memcmp(value->bytes, text, length) == 0;
}

const struct resp_value *resp_field(const struct resp_value *list, const char *name)
{
    for (size_t i = 0; list->type == RESP_ARRAY && i + 1 < list->count; i += 2)
        if (resp_equals(&list->items[i], name))
            return &list->items[i + 1];
    return NULL;
}

enum status resp_check(const struct resp_value *value, struct err *err)
{
    static const struct {
        const char *word;
        enum status status;
        const char *advice;
    } voices[] = {
        {"NOAUTH", STATUS_DENIED, " Set redis_password_file or redis_password."},
        {"WRONGPASS", STATUS_DENIED},
        {"NOPERM", STATUS_DENIED},
        {"DENIED", STATUS_DENIED},
        {"LOADING", STATUS_UNAVAILABLE},
        {"BUSY", STATUS_UNAVAILABLE},
        {"READONLY", STATUS_UNAVAILABLE},
        {"MISCONF", STATUS_UNAVAILABLE},
        {"MASTERDOWN", STATUS_UNAVAILABLE},
        {"NOREPLICAS", STATUS_UNAVAILABLE},
        {"CLUSTERDOWN", STATUS_UNAVAILABLE},
        {"TRYAGAIN", STATUS_UNAVAILABLE},
        {"ASK", STATUS_UNAVAILABLE},
        {"MOVED", STATUS_UNAVAILABLE},
        {"OOM", STATUS_UNAVAILABLE},
    };
    if (value->type != RESP_ERROR) {
        return STATUS_OK;
    }
    static const struct {
        const char *begin;
        enum status status;
    } errors[] = {
        {"ERR The user executing the script can't ", STATUS_DENIED},
        {"ERR max number of clients", STATUS_UNAVAILABLE},
    };
    int length = value->length > 400 ? 400 : (int)value->length;
    for (size_t i = 0; i < sizeof voices / sizeof *voices; i++) {
        if (resp_is_error(value, voices[i].word)) {
            const char *advice = voices[i].advice ? voices[i].advice : "";
            return err_set(err, voices[i].status, "Redis says: %.*s%s", length, value->bytes, advice);
        }
    }
    enum status status = STATUS_INTERNAL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        size_t begin = strlen(errors[i].begin);
        if (value->length >= begin && memcmp(value->bytes, errors[i].begin, begin) == 0) {
            status = errors[i].status;
        }
    }
    return err_set(err, status, "Redis says: %.*s", length, value->bytes);
}
