/* Prints the reply of one request, or where a request is that has none yet. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "cli/print.h"
#include "cli/session.h"
#include "daemon/config.h"
#include "schedule/request.h"

enum { LOOKS = 3 }; /* a request may move between two questions */

/* Where a request without a reply is. */
struct place {
    const char *status; /* "queued", "running" or "later"; NULL: unknown */
    char worker[256];   /* running: whose it is */
    double due_at;      /* later: Redis' unix ms; else 0 */
};

/* Reads an entry's id: a word, or the first of an array. 0-0 for anything else. */
static struct entry_id read_id(const struct resp_value *value)
{
    struct entry_id id;
    if (value && value->type == RESP_ARRAY && value->count > 0) { value = &value->items[0]; }
    return value && value->bytes && entry_id_parse(value->bytes, value->length, &id) ? id : (struct entry_id){0};
}

/* Looks among the pending entries, which a worker has, has given back (`released`) or has set aside (`ahead`); then
 * among those that nobody has read. */
static enum status look_in_stream(struct session *session, const char *stream, struct entry_id entry,
                                  struct place *place, struct err *err)
{
    char id[ENTRY_ID_TEXT];
    const struct resp_value *reply, *group;
    struct entry_id first, last, delivered = {0};
    long long length;
    TRY(SESSION_ASK_NUMBER(session, &length, err, "XLEN", stream));
    if (length == 0) { return STATUS_OK; }
    TRY(SESSION_ASK(session, &reply, err, "XINFO", "GROUPS", stream));
    if ((group = session_group(reply))) {
        delivered = read_id(resp_field(group, "last-delivered-id"));
        entry_id_format(entry, id);
        TRY(SESSION_ASK(session, &reply, err, "XPENDING", stream, "sluice", id, id, "1"));
        if (reply->type == RESP_ARRAY && reply->count == 1 && reply->items[0].count > 1) {
            const char *owner = session_text(&reply->items[0].items[1]);
            bool waits = strcmp(owner, "released") == 0 || strcmp(owner, "ahead") == 0;
            place->status = waits ? "queued" : "running";
            snprintf(place->worker, sizeof place->worker, "%s", waits ? "" : owner);
            return STATUS_OK;
        }
    }
    TRY(SESSION_ASK(session, &reply, err, "XINFO", "STREAM", stream));
    first = read_id(resp_field(reply, "first-entry"));
    last = read_id(resp_field(reply, "last-entry"));
    if (entry_id_compare(entry, delivered) > 0 && entry_id_compare(entry, first) >= 0 &&
        entry_id_compare(entry, last) <= 0) {
        place->status = "queued";
    }
    return STATUS_OK;
}

/* Looks for a request by its name: among those that wait for their time, then in its stream. */
static enum status look(struct session *session, const char *name, struct place *place, struct err *err)
{
    char key[SESSION_KEY], carrier[ENTRY_ID_TEXT];
    const struct resp_value *reply;
    enum request_class class;
    struct entry_id entry;
    if (!request_name_parse(name, strlen(name), &class, &entry)) { return STATUS_OK; }
    TRY(SESSION_ASK(session, &reply, err, "ZSCORE", session_key(session, "later", "", key), name));
    if (reply->bytes) {
        place->status = "later";
        place->due_at = strtod(reply->bytes, NULL);
        return STATUS_OK;
    }
    /* Who came back from `later` is another entry now. */
    TRY(SESSION_ASK(session, &reply, err, "HGET", session_key(session, "trouble", "", key), name));
    if (sscanf(session_text(reply), "%*u %*u %41s", carrier) == 1 &&
        !entry_id_parse(carrier, strlen(carrier), &entry)) {
        return err_set(err, STATUS_INTERNAL, "the record of %s in trouble has an unknown shape", name);
    }
    return look_in_stream(session, session_key(session, class_streams[class], "", key), entry, place, err);
}

static void print_place(const char *id, const struct place *place)
{
    fputs("{\"id\":", stdout);
    print_json_string(stdout, id, strlen(id));
    printf(",\"status\":\"%s\"", place->status ? place->status : "unknown");
    if (place->worker[0] != '\0') {
        fputs(",\"worker\":", stdout);
        print_json_string(stdout, place->worker, strlen(place->worker));
    }
    if (place->due_at > 0) { printf(",\"due_at\":%.0f", place->due_at); }
    puts("}");
}

static enum status get(struct session *session, const char *id, struct err *err)
{
    char key[SESSION_KEY];
    const struct resp_value *reply;
    struct place place = {0};
    enum status looked = STATUS_OK;
    for (int i = 0; i < LOOKS && !place.status && looked == STATUS_OK; i++) {
        TRY(SESSION_ASK(session, &reply, err, "HGETALL", session_key(session, "reply:", id, key)));
        if (reply->type == RESP_ARRAY && reply->count > 0) { return print_reply(stdout, id, reply, err); }
        looked = look(session, id, &place, err);
    }
    if (looked != STATUS_OK && looked != STATUS_DENIED) { return looked; }
    print_place(id, &place);
    const char *why =
        looked == STATUS_DENIED ? "only an operator's login may ask where it is"
        : place.status          ? "it is not finished"
        : request_id_usable(id, strlen(id))
            ? "it is not finished, has expired or was never enqueued; its name, which XADD returned, tells more"
            : "it has ended, and its reply has expired or is under its own id; or it was never enqueued";
    return err_set(err, STATUS_UNAVAILABLE, "no reply for \"%s\" in queue %s: %s", id, session->queue, why);
}

static int run(struct invocation *invocation)
{
    struct err err;
    struct session session;
    if (invocation->operand_count != 1 || strlen(invocation->operands[0]) > 128) {
        fprintf(stderr, "sluice get: needs one ID of at most 128 bytes, the one that XADD or sluice submit printed\n");
        return EX_USAGE;
    }
    if (!session_is_one(invocation)) { return EX_USAGE; }
    enum status status = session_connect(&session, invocation, &err);
    if (status == STATUS_OK) { status = get(&session, invocation->operands[0], &err); }
    session_close(&session);
    return status == STATUS_OK ? EX_OK : print_error(invocation, &err);
}

const struct subcommand command_get = {
    .name = "get",
    .bit = FOR_GET,
    .operands = "ID",
    .summary = "Print the reply of a request as one line of JSON",
    .explanation =
        "Exit 69 when there is no reply (yet). Its status is then queued, running (the line names the worker),\n"
        "later (due_at: Redis' unix ms) or unknown; to an operator, and by the name that XADD returned.",
    .run = run,
};
