#include "operator/letters.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "schedule/request.h"

void letter_info(const struct letter *letter, const char *name, char *text, size_t size)
{
    const struct resp_value *info = resp_field(letter->fields, "_info");
    (void)json_member_text(info ? info->bytes : NULL, info ? info->length : 0, name, text, size);
}

uint64_t letter_attempts(const struct letter *letter)
{
    const struct resp_value *info = resp_field(letter->fields, "_info");
    uint64_t attempts;
    (void)json_member_number(info ? info->bytes : NULL, info ? info->length : 0, "attempts", &attempts);
    return attempts;
}

static bool field_is(const struct letter *letter, const char *name, const char *wanted)
{
    const struct resp_value *value = resp_field(letter->fields, name);
    return value && resp_equals(value, wanted);
}

static bool has_bytes(const struct letter *letter, const char *search)
{
    for (size_t i = 0; i < letter->fields->count; i++) {
        const struct resp_value *text = &letter->fields->items[i];
        if (text->bytes && memmem(text->bytes, text->length, search, strlen(search))) { return true; }
    }
    return false;
}

static bool passes_filter(const struct letter *letter, const struct letter_filter *filter)
{
    char id[REQUEST_ID_MAX + 2];
    if (filter->code && !field_is(letter, "_code", filter->code)) { return false; }
    if (filter->search && !has_bytes(letter, filter->search)) { return false; }
    letter_info(letter, "id", id, sizeof id);
    return !filter->id || field_is(letter, "id", filter->id) || strcmp(id, filter->id) == 0 ||
           field_is(letter, "_entry", filter->id);
}

/* Reads an entry of XRANGE; false when it has another shape. */
static bool read_letter(const struct session *session, const struct resp_value *entry, struct letter *out)
{
    if (entry->type != RESP_ARRAY || entry->count != 2 || !entry->items[0].bytes ||
        entry->items[1].type != RESP_ARRAY) {
        return false;
    }
    uint64_t buried_ms = strtoull(entry->items[0].bytes, NULL, 10);
    *out = (struct letter){.id = entry->items[0].bytes,
                           .fields = &entry->items[1],
                           .age_ms = session->redis_ms > buried_ms ? session->redis_ms - buried_ms : 0};
    return true;
}

/* Copies the answer, because `visit` sends other commands. */
static enum status read_page(struct session *session, const char *command, const char *from, const char *to,
                             struct resp_value **out, struct err *err)
{
    char key[SESSION_KEY], count[16];
    const struct resp_value *page;
    snprintf(count, sizeof count, "%d", LETTER_PAGE);
    TRY(SESSION_ASK(session, &page, err, command, session_key(session, "dead", "", key), from, to, "COUNT", count));
    *out = resp_clone(page);
    if (!*out) { return err_set(err, STATUS_NO_MEMORY, "no memory for %zu dead letters", page->count); }
    return STATUS_OK;
}

/* A cursor is a letter's id; if the oldest letters come first, `/` and the time at which the walk began follow. */
bool letters_cursor_is(const char *text)
{
    struct entry_id id;
    size_t length = strcspn(text, "/"), digits = text[length] ? strspn(text + length + 1, "0123456789") : 0;
    bool whole = text[length] == '\0' || (digits > 0 && digits <= 20 && text[length + 1 + digits] == '\0');
    return whole && entry_id_parse(text, length, &id);
}

enum status letters_page(struct session *session, const struct letter_filter *filter, bool newest_first,
                         const char *cursor, char next[LETTER_CURSOR], void *context, letter_visit_fn *visit,
                         struct err *err)
{
    char first[LETTER_CURSOR], last[LETTER_CURSOR], *from = newest_first ? last : first;
    uint64_t now = session->redis_ms, newer_ms = filter->newer_than_ms, older_ms = filter->older_than_ms;
    struct resp_value *page;
    snprintf(first, sizeof first, "%" PRIu64, newer_ms > 0 && newer_ms < now ? now - newer_ms : 0);
    snprintf(last, sizeof last, "%" PRIu64, older_ms < now ? now - older_ms : 0);
    if (cursor) {
        size_t id = strcspn(cursor, "/");
        if (!newest_first && cursor[id] == '/') { snprintf(last, sizeof last, "%s", cursor + id + 1); }
        snprintf(from, sizeof first, "(%.*s", (int)id, cursor);
    }
    next[0] = '\0';
    TRY(newest_first ? read_page(session, "XREVRANGE", last, first, &page, err)
                     : read_page(session, "XRANGE", first, last, &page, err));
    enum status status = STATUS_OK;
    for (size_t i = 0; i < page->count && status == STATUS_OK; i++) {
        struct letter letter;
        if (!read_letter(session, &page->items[i], &letter)) {
            status =
                err_set(err, STATUS_INTERNAL, "%s answered in an unknown shape", newest_first ? "XREVRANGE" : "XRANGE");
        } else {
            if (i + 1 == LETTER_PAGE) {
                snprintf(next, LETTER_CURSOR, "%.41s%s%.20s", letter.id, newest_first ? "" : "/",
                         newest_first ? "" : last);
            }
            if (passes_filter(&letter, filter)) { status = visit(context, &letter, err); }
        }
    }
    free(page);
    return status;
}

enum status letters_each(struct session *session, const struct letter_filter *filter, void *context,
                         letter_visit_fn *visit, struct err *err)
{
    char cursor[LETTER_CURSOR];
    TRY(letters_page(session, filter, false, NULL, cursor, context, visit, err));
    while (cursor[0] != '\0') { TRY(letters_page(session, filter, false, cursor, cursor, context, visit, err)); }
    return STATUS_OK;
}

enum status letters_one(struct session *session, const char *id, void *context, letter_visit_fn *visit, struct err *err)
{
    struct resp_value *page;
    struct entry_id parsed;
    if (!entry_id_parse(id, strlen(id), &parsed)) {
        return err_set(err, STATUS_NOT_FOUND, "there is no dead letter %s: a letter is called 1795252518106-0", id);
    }
    TRY(read_page(session, "XRANGE", id, id, &page, err));
    struct letter letter;
    enum status status = page->count == 1 && read_letter(session, &page->items[0], &letter)
                             ? visit(context, &letter, err)
                             : err_set(err, STATUS_NOT_FOUND, "there is no dead letter %s", id);
    free(page);
    return status;
}

enum status letter_delete(struct session *session, const char *id, bool *removed, struct err *err)
{
    char key[SESSION_KEY];
    long long count;
    TRY(SESSION_ASK_NUMBER(session, &count, err, "XDEL", session_key(session, "dead", "", key), id));
    *removed = count == 1;
    return STATUS_OK;
}

enum status letter_requeue(struct session *session, const char *id, char digest[SCRIPT_DIGEST + 1], enum requeued *out,
                           char *entry, struct err *err)
{
    char dead[SESSION_KEY], high[SESSION_KEY], normal[SESSION_KEY], low[SESSION_KEY];
    if (digest[0] == '\0') { TRY(session_load(session, SCRIPT_REQUEUE, digest, err)); }
    const struct resp_value *reply;
    TRY(SESSION_ASK(session, &reply, err, "EVALSHA", digest, "4", session_key(session, "dead", "", dead),
                    session_key(session, class_streams[CLASS_HIGH], "", high),
                    session_key(session, class_streams[CLASS_NORMAL], "", normal),
                    session_key(session, class_streams[CLASS_LOW], "", low), id));
    if (reply->type != RESP_ARRAY || reply->count == 0) {
        return err_set(err, STATUS_INTERNAL, "lua/requeue answered in an unknown shape");
    }
    long long said = reply->items[0].integer;
    bool done = said == 1 && reply->count == 2;
    *out = done ? REQUEUED : said == -1 ? REQUEUED_EMPTY : said == -2 ? REQUEUED_CUT : REQUEUED_GONE;
    snprintf(entry, ENTRY_ID_TEXT, "%s", done ? session_text(&reply->items[1]) : "");
    return STATUS_OK;
}
