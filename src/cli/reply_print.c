#include "cli/reply_print.h"

#include <ctype.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/embedding_print.h"
#include "cli/print.h"

bool reply_is_final(const struct resp_value *reply)
{
    const struct resp_value *status = resp_field(reply, "status");
    return status != NULL &&
           (resp_equals(status, "done") || resp_equals(status, "error") || resp_equals(status, "cancelled"));
}

static bool is_number(const struct resp_value *value)
{
    static const char *const counts[] = {"dim",      "tokens", "queued_ms", "compute_ms", "done_at",       "truncated",
                                         "attempts", "count",  "retryable", "index",      "retry_after_ms"};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (resp_equals(value, counts[i]))
            return true;
    return false;
}

/* Whether it may stand unquoted: digits with at most one point between them. */
static bool is_plain_number(const struct resp_value *value)
{
    size_t points = 0;
    for (size_t i = 0; i < value->length; i++) {
        points += value->bytes[i] == '.';
        if (!isdigit((unsigned char)value->bytes[i]) && (value->bytes[i] != '.' || i == 0 || i + 1 == value->length))
            return false;
    }
    bool leading_zero = value->length > 1 && value->bytes[0] == '0' && value->bytes[1] != '.';
    return value->length > 0 && points <= 1 && !leading_zero;
}

enum status reply_print(FILE *to, const char *id, const struct resp_value *reply, struct err *err)
{
    fputs("{\"id\":", to);
    print_json_string(to, id, strlen(id));
    for (size_t i = 0; i + 1 < reply->count; i += 2) {
        const struct resp_value *name = &reply->items[i], *value = &reply->items[i + 1];
        bool embedding = resp_equals(name, "embedding");
        if (name->bytes == NULL || value->bytes == NULL || (!embedding && !utf8_valid(value->bytes, value->length)))
            return err_set(err, STATUS_BAD_INPUT, "%s: this is not a reply of Sluice", id);
        if (resp_equals(name, "id"))
            continue;
        putc(',', to);
        print_json_string(to, name->bytes, name->length);
        putc(':', to);
        enum status status = embedding ? embedding_print(to, reply, value, err) : STATUS_OK;
        if (status != STATUS_OK)
            return err_prefix(err, "%s", id);
        if (!embedding && is_number(name) && is_plain_number(value))
            fwrite(value->bytes, 1, value->length, to);
        else if (!embedding)
            print_json_string(to, value->bytes, value->length);
    }
    fputs("}\n", to);
    return STATUS_OK;
}
