#include "cli/letters.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 100 };

static bool field_is(const struct letter *letter, const char *name, const char *wanted)
{
    const struct resp_value *value = resp_field(letter->fields, name);
    return value != NULL && resp_equals(value, wanted);
}

static bool passes(const struct letter *letter, const struct letter_filter *filter)
{
    if (filter->code != NULL && !field_is(letter, "_code", filter->code))
        return false;
    return filter->id == NULL || field_is(letter, "id", filter->id) || field_is(letter, "_id", filter->id) ||
           field_is(letter, "_entry", filter->id);
}

/* One entry of XRANGE as a letter; false when it has another shape. */
static bool read_letter(const struct session *session, const struct resp_value *entry, struct letter *out)
{
    if (entry->type != RESP_ARRAY || entry->count != 2 || entry->items[0].bytes == NULL ||
        entry->items[1].type != RESP_ARRAY)
        return false;
    uint64_t buried_ms = strtoull(entry->items[0].bytes, NULL, 10);
    *out = (struct letter){.id = entry->items[0].bytes,
                           .fields = &entry->items[1],
                           .age_ms = session->redis_ms > buried_ms ? session->redis_ms - buried_ms : 0};
    return true;
}

/* The answer is copied, because `visit` asks Redis for other things. */
static enum status read_page(struct session *session, const char *from, const char *to, struct resp_value **out,
                             struct err *err)
{
    char key[SESSION_KEY], count[16];
    const struct resp_value *page;
    snprintf(count, sizeof count, "%d", PAGE);
    TRY(SESSION_ASK(session, &page, err, "XRANGE", session_key(session, "dead", "", key), from, to, "COUNT", count));
    *out = resp_clone(page);
    if (*out == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for %zu dead letters", page->count);
    return STATUS_OK;
}

enum status letters_walk(struct session *session, const struct letter_filter *filter, void *context,
                         enum status (*visit)(void *context, const struct letter *letter, struct err *err),
                         struct err *err)
{
    char from[64], to[64];
    uint64_t now = session->redis_ms;
    uint64_t first = filter->newer_than_ms > 0 && filter->newer_than_ms < now ? now - filter->newer_than_ms : 0;
    uint64_t last = filter->older_than_ms < now ? now - filter->older_than_ms : 0;
    snprintf(from, sizeof from, "%" PRIu64, first);
    snprintf(to, sizeof to, "%" PRIu64, last);
    for (bool more = true; more;) {
        struct resp_value *page;
        TRY(read_page(session, from, to, &page, err));
        enum status status = STATUS_OK;
        for (size_t i = 0; i < page->count && status == STATUS_OK; i++) {
            struct letter letter;
            if (!read_letter(session, &page->items[i], &letter))
                status = err_set(err, STATUS_INTERNAL, "XRANGE answered in an unknown shape");
            else if (passes(&letter, filter))
                status = visit(context, &letter, err);
            if (i + 1 == page->count)
                snprintf(from, sizeof from, "(%.60s", session_text(&page->items[i].items[0]));
        }
        more = page->count == PAGE;
        free(page);
        TRY(status);
    }
    return STATUS_OK;
}

enum status letters_find(struct session *session, const char *id, void *context,
                         enum status (*visit)(void *context, const struct letter *letter, struct err *err),
                         struct err *err)
{
    struct resp_value *page;
    TRY(read_page(session, id, id, &page, err));
    struct letter letter;
    enum status status = page->count == 1 && read_letter(session, &page->items[0], &letter)
                             ? visit(context, &letter, err)
                             : err_set(err, STATUS_NOT_FOUND, "there is no dead letter %s", id);
    free(page);
    return status;
}
