/* One connection at a time: to a server, or to a sentinel and then to the server that it named.
 *
 *   ask the next endpoint ── a server: up, so it is a master: found
 *        ^         └──── a sentinel: names the master ── connect there ── up: found
 *        └── a failure is noted; after the last endpoint all failures are reported */
#include "redis/find_master.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/connection.h"
#include "redis/dial.h"

enum { LEAST_MS = 1000, ANSWER_MAX_BYTES = 64 << 10, HOST_MAX = 256 };

struct find_master {
    struct find_master_options options;
    struct resolver *resolver;
    struct connection *connection;
    struct event *begin;   /* asks the next endpoint, outside the callbacks of the last connection */
    size_t first;          /* the endpoint to ask first: it knew the master last time */
    size_t asked;          /* endpoints asked in this search */
    char host[HOST_MAX];   /* of `named` */
    struct endpoint named; /* by a sentinel */
    char moved_host[HOST_MAX];
    struct endpoint moved;        /* from a MOVED */
    bool moved_due;               /* the next search finds it */
    const struct endpoint *found; /* last; NULL: none, or a socket */
    struct err failed;            /* all failures, joined */
    bool unreachable, denied;
};

static size_t current_sentinel(const struct find_master *finder)
{
    return (finder->first + finder->asked) % finder->options.address->endpoint_count;
}

static void drop_connection(struct find_master *finder)
{
    struct connection *connection = finder->connection;
    finder->connection = NULL;
    connection_close(connection);
}

static void schedule_soon(struct find_master *finder)
{
    struct timeval now = {0};
    event_add(finder->begin, &now);
}

/* --- Outcomes ----------------------------------------------------------------------------------------------------- */

static void report_master(struct find_master *finder, const struct endpoint *endpoint)
{
    finder->first = current_sentinel(finder);
    finder->asked = 0;
    drop_connection(finder);
    finder->found = endpoint;
    finder->options.on_found(finder->options.context, endpoint);
}

/* Notes why this endpoint failed, and tries the next. */
static void try_next(struct find_master *finder, const struct err *err)
{
    size_t used = strlen(finder->failed.message);
    snprintf(finder->failed.message + used, sizeof finder->failed.message - used, "%s%s", used ? "; " : "",
             err->message);
    finder->denied |= err->status == STATUS_DENIED;
    finder->unreachable |= err->status != STATUS_DENIED;
    finder->asked++;
    drop_connection(finder);
    schedule_soon(finder);
}

/* --- Connections -------------------------------------------------------------------------------------------------- */

static void on_down(void *context, const struct err *err)
{
    try_next(context, err);
}

static void on_server_up(void *context)
{
    struct find_master *finder = context;
    const struct address *address = finder->options.address;
    report_master(finder, address->master ? &finder->named : &address->endpoints[current_sentinel(finder)]);
}

static uint32_t endpoint_timeout_ms(const struct find_master *finder)
{
    uint32_t part_ms = finder->options.timeout_ms / (uint32_t)finder->options.address->endpoint_count;
    return part_ms > LEAST_MS ? part_ms : LEAST_MS;
}

static void connect_to(struct find_master *finder, const struct endpoint *endpoint, bool sentinel,
                       void (*on_up)(void *context))
{
    struct err err;
    struct connection_options options = {
        .base = finder->options.base,
        .address = finder->options.address,
        .endpoint = endpoint,
        .resolver = finder->resolver,
        .sentinel = sentinel,
        .master_only = !sentinel,
        .connect_timeout_ms = endpoint_timeout_ms(finder),
        .max_reply_bytes = ANSWER_MAX_BYTES,
        .context = finder,
        .on_up = on_up,
        .on_down = on_down,
    };
    if (connection_open(&options, &finder->connection, &err)) { try_next(finder, &err); }
}

/* --- Sentinels ---------------------------------------------------------------------------------------------------- */

/* Reads ["host", "port"]. */
static bool read_endpoint(struct find_master *finder, const struct resp_value *reply)
{
    if (reply->type != RESP_ARRAY || reply->count != 2 || !reply->items[0].bytes || !reply->items[1].bytes) {
        return false;
    }
    long port = strtol(reply->items[1].bytes, NULL, 10);
    snprintf(finder->host, sizeof finder->host, "%s", reply->items[0].bytes);
    finder->named = (struct endpoint){finder->host, (uint16_t)port};
    return port > 0 && port < 65536 && finder->host[0];
}

static void on_named(void *context, const struct resp_value *reply)
{
    struct find_master *finder = context;
    struct err err;
    char text[ADDRESS_TEXT];
    if (!reply) { return; /* on_down has dealt with it */ }
    const char *sentinel = endpoint_print(&finder->options.address->endpoints[current_sentinel(finder)], text);
    if (resp_check(reply, &err)) {
        err_prefix(&err, "%s", sentinel);
        try_next(finder, &err);
    } else if (!read_endpoint(finder, reply)) {
        err_set(&err, STATUS_UNAVAILABLE, "%s: this Sentinel knows no master named %s", sentinel,
                finder->options.address->master);
        try_next(finder, &err);
    } else {
        drop_connection(finder);
        connect_to(finder, &finder->named, false, on_server_up);
    }
}

static void on_sentinel_up(void *context)
{
    struct find_master *finder = context;
    struct err err;
    const char *const words[] = {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", finder->options.address->master};
    if (connection_command(finder->connection, 3, words, NULL, endpoint_timeout_ms(finder), on_named, finder, &err)) {
        try_next(finder, &err);
    }
}

/* --- Life --------------------------------------------------------------------------------------------------------- */

static void on_begin(evutil_socket_t fd, short what, void *context)
{
    struct find_master *finder = context;
    const struct address *address = finder->options.address;
    (void)fd;
    (void)what;
    if (finder->moved_due) {
        finder->moved_due = false;
        finder->found = &finder->moved;
        finder->options.on_found(finder->options.context, &finder->moved);
    } else if (!address_is_plural(address)) {
        finder->found = address->endpoints;
        finder->options.on_found(finder->options.context, NULL);
    } else if (finder->asked == address->endpoint_count) {
        finder->failed.status = finder->denied && !finder->unreachable ? STATUS_DENIED : STATUS_UNAVAILABLE;
        err_prefix(&finder->failed, "no master found");
        finder->options.on_failed(finder->options.context, &finder->failed);
    } else {
        bool sentinel = address->master;
        connect_to(finder, &address->endpoints[current_sentinel(finder)], sentinel,
                   sentinel ? on_sentinel_up : on_server_up);
    }
}

enum status find_master_open(const struct find_master_options *options, struct find_master **out, struct err *err)
{
    struct find_master *finder = calloc(1, sizeof *finder);
    if (!finder || !(finder->begin = evtimer_new(options->base, on_begin, finder))) {
        free(finder);
        return err_set(err, STATUS_NO_MEMORY, "no memory for a connection");
    }
    finder->options = *options;
    enum status status = resolver_open(options->base, &finder->resolver, err);
    if (status) {
        find_master_close(finder);
        return status;
    }
    *out = finder;
    return STATUS_OK;
}

void find_master_close(struct find_master *finder)
{
    if (finder) {
        drop_connection(finder);
        resolver_close(finder->resolver);
        event_free(finder->begin);
        free(finder);
    }
}

void find_master_start(struct find_master *finder)
{
    find_master_stop(finder);
    finder->asked = 0;
    finder->failed = (struct err){0};
    finder->unreachable = finder->denied = false;
    schedule_soon(finder);
}

void find_master_stop(struct find_master *finder)
{
    if (finder) {
        event_del(finder->begin);
        drop_connection(finder);
    }
}

void find_master_follow(struct find_master *finder, const struct resp_value *reply)
{
    const char *space = resp_is_error(reply, "MOVED") ? strrchr(reply->bytes, ' ') : NULL;
    const char *colon = space ? strrchr(space, ':') : NULL;
    long port = colon ? strtol(colon + 1, NULL, 10) : 0;
    if (port < 1 || port > 65535 || !finder->found) { return; }
    int length = (int)(colon - space - 1);
    if (length > 0) { /* 0: the same host */
        snprintf(finder->moved_host, sizeof finder->moved_host, "%.*s", length, space + 1);
    } else if (finder->found != &finder->moved) {
        snprintf(finder->moved_host, sizeof finder->moved_host, "%s", finder->found->host);
    }
    finder->moved = (struct endpoint){finder->moved_host, (uint16_t)port};
    finder->moved_due = true;
}

struct resolver *find_master_resolver(const struct find_master *finder)
{
    return finder->resolver;
}
