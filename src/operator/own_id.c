#include "operator/own_id.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { CURSOR_MAX = 64 };

/* A search under way. */
struct search {
    struct session *session;
    const char *id;
    char digest[SCRIPT_DIGEST + 1];
    uint64_t left; /* requests that it may still look at */
    struct own_id_found *found;
};

/* Says whether one request came after another: by the time in its name, then by its class. */
static bool is_newer(const char *name, const char *than)
{
    enum request_class class, than_class;
    struct entry_id id, than_id;
    if (!request_name_parse(name, strlen(name), &class, &id) ||
        !request_name_parse(than, strlen(than), &than_class, &than_id)) {
        return false;
    }
    int order = entry_id_compare(id, than_id);
    return order != 0 ? order > 0 : class > than_class;
}

/* Keeps a name unless it is there already: the search may meet a request twice if it moves. */
static void add_found(struct own_id_found *found, const struct resp_value *name)
{
    enum request_class class;
    struct entry_id id;
    char text[REQUEST_NAME_MAX];
    size_t at = 0;
    if (!name->bytes || name->length >= sizeof text || !request_name_parse(name->bytes, name->length, &class, &id)) {
        return;
    }
    request_name_format(class, id, text);
    for (size_t i = 0; i < found->count; i++) {
        if (strcmp(found->names[i], text) == 0) { return; }
        at += is_newer(found->names[i], text);
    }
    if (found->count == OWN_ID_MAX) {
        found->more = true;
        return;
    }
    memmove(found->names[at + 1], found->names[at], (found->count - at) * sizeof found->names[0]);
    memcpy(found->names[at], text, sizeof text);
    found->count++;
}

/* Looks through a stream or `later`, from `cursor` on. */
static enum status look_through(struct search *search, const char *place, char cursor[CURSOR_MAX], struct err *err)
{
    struct session *session = search->session;
    char key[SESSION_KEY], trouble[SESSION_KEY], data[SESSION_KEY];
    session_key(session, place, "", key);
    session_key(session, "trouble", "", trouble);
    session_key(session, "later:data", "", data);
    for (bool more = true; more && !search->found->more;) {
        const struct resp_value *reply;
        TRY(SESSION_ASK(session, &reply, err, "EVALSHA", search->digest, "3", key, trouble, data, search->id, cursor));
        if (reply->type != RESP_ARRAY || reply->count < 3 || reply->items[0].type != RESP_INTEGER ||
            !reply->items[1].bytes || reply->items[1].length >= CURSOR_MAX || reply->items[2].type != RESP_INTEGER) {
            return err_set(err, STATUS_INTERNAL, "lua/find answered in an unknown shape");
        }
        more = reply->items[0].integer == 1;
        memcpy(cursor, reply->items[1].bytes, reply->items[1].length + 1);
        for (size_t i = 3; i < reply->count; i++) { add_found(search->found, &reply->items[i]); }
        uint64_t looked = (uint64_t)reply->items[2].integer;
        search->found->more |= more && looked >= search->left;
        search->left -= looked < search->left ? looked : search->left;
    }
    return STATUS_OK;
}

/* A request that is parked before the search reaches it is found in `later`. One that comes back from `later` meanwhile
 * is at the end of its stream, which the second pass reads. */
enum status own_id_find(struct session *session, const char *id, uint64_t most, struct own_id_found *out,
                        struct err *err)
{
    struct search search = {.session = session, .id = id, .left = most, .found = out};
    char cursors[CLASS_COUNT][CURSOR_MAX] = {{0}}, later[CURSOR_MAX] = "";
    *out = (struct own_id_found){0};
    TRY(session_load(session, SCRIPT_FIND, search.digest, err));
    for (int pass = 0; pass < 2; pass++) {
        for (int c = 0; c < CLASS_COUNT; c++) { TRY(look_through(&search, class_streams[c], cursors[c], err)); }
        if (pass == 0) { TRY(look_through(&search, "later", later, err)); }
    }
    return STATUS_OK;
}

enum status own_id_cancel(struct session *session, const char *id, uint64_t most, struct own_id_found *found,
                          struct err *err)
{
    char key[SESSION_KEY];
    const struct resp_value *reply;
    enum request_class class;
    struct entry_id entry;
    bool own = request_id_usable(id, strlen(id)), name = request_name_parse(id, strlen(id), &class, &entry);
    *found = (struct own_id_found){0};
    if (!own && !name) {
        return err_set(err, STATUS_BAD_INPUT, "\"%.128s\" is neither a request's name nor an id that it could have",
                       id);
    }
    if (own) { TRY(own_id_find(session, id, most, found, err)); }
    if (name && found->count == 0 && !found->more) {
        request_name_format(class, entry, found->names[0]);
        found->count = 1;
    }
    session_key(session, "control", "", key);
    for (size_t i = 0; i < found->count; i++) {
        TRY(SESSION_ASK(session, &reply, err, "XADD", key, "*", "cancel", found->names[i]));
    }
    return STATUS_OK;
}
