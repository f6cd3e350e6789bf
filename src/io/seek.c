/* One link at a time: to a server, or to a sentinel and then to the server that it named.
 *
 *   ask next place ── servers: up (so it is a master): found
 *        ^      └──── sentinels: name the master ── connect there ── up: found
 *        └── any failure is noted; when all places have been asked, all of them are told */
#include "io/seek.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/connection.h"

enum { LEAST_MS = 1000, ANSWER_MAX_BYTES = 64 << 10, HOST_MAX = 256 };

struct seek {
    struct seek_options options;
    struct link *link;
    struct event *begin; /* asks the next place, outside of the callbacks of the last one's link */
    size_t first;        /* whom to ask first: who knew it the last time */
    size_t asked;        /* places asked in this seek */
    char host[HOST_MAX]; /* of `named` */
    struct place named;  /* by a sentinel */
    struct err failed;   /* every reason, one behind the other */
    bool unreachable, denied;
};

static size_t current(const struct seek *seek)
{
    return (seek->first + seek->asked) % seek->options.address->place_count;
}

static void drop_link(struct seek *seek)
{
    struct link *link = seek->link;
    seek->link = NULL;
    link_close(link);
}

static void soon(struct seek *seek)
{
    struct timeval now = {0};
    event_add(seek->begin, &now);
}

/* --- Outcomes ----------------------------------------------------------------------------------------------------- */

static void found(struct seek *seek, const struct place *place)
{
    seek->first = current(seek);
    seek->asked = 0;
    drop_link(seek);
    seek->options.on_found(seek->options.context, place);
}

/* Notes why this place was of no use, and goes on to the next. */
static void failed(struct seek *seek, const struct err *err)
{
    size_t used = strlen(seek->failed.message);
    snprintf(seek->failed.message + used, sizeof seek->failed.message - used, "%s%s", used ? "; " : "", err->message);
    seek->denied |= err->status == STATUS_DENIED;
    seek->unreachable |= err->status != STATUS_DENIED;
    seek->asked++;
    drop_link(seek);
    soon(seek);
}

static void all_failed(struct seek *seek)
{
    seek->failed.status = seek->denied && !seek->unreachable ? STATUS_DENIED : STATUS_UNAVAILABLE;
    err_prefix(&seek->failed, "no master found");
    seek->options.on_failed(seek->options.context, &seek->failed);
}

/* --- Links -------------------------------------------------------------------------------------------------------- */

static void on_down(void *context, const struct err *err)
{
    failed(context, err);
}

static void on_server_up(void *context)
{
    struct seek *seek = context;
    const struct address *address = seek->options.address;
    found(seek, address->master ? &seek->named : &address->places[current(seek)]);
}

static uint32_t share_ms(const struct seek *seek)
{
    uint32_t share = seek->options.timeout_ms / (uint32_t)seek->options.address->place_count;
    return share > LEAST_MS ? share : LEAST_MS;
}

static void connect_to(struct seek *seek, const struct place *place, bool sentinel, void (*on_up)(void *context))
{
    struct err err;
    struct link_options options = {
        .base = seek->options.base,
        .address = seek->options.address,
        .place = place,
        .resolver = seek->options.resolver,
        .sentinel = sentinel,
        .master_only = !sentinel,
        .connect_timeout_ms = share_ms(seek),
        .max_reply_bytes = ANSWER_MAX_BYTES,
        .context = seek,
        .on_up = on_up,
        .on_down = on_down,
    };
    if (link_open(&options, &seek->link, &err)) {
        failed(seek, &err);
    }
}

/* --- Sentinels ---------------------------------------------------------------------------------------------------- */

/* Reads ["host", "port"]. */
static bool read_place(struct seek *seek, const struct resp_value *reply)
{
    if (reply->type != RESP_ARRAY || reply->count != 2 || !reply->items[0].bytes || !reply->items[1].bytes) {
        return false;
    }
    long port = strtol(reply->items[1].bytes, NULL, 10);
    snprintf(seek->host, sizeof seek->host, "%s", reply->items[0].bytes);
    seek->named = (struct place){seek->host, (uint16_t)port};
    return port > 0 && port < 65536 && seek->host[0];
}

static void on_named(void *context, const struct resp_value *reply, const struct err *lost)
{
    struct seek *seek = context;
    struct err err;
    char text[ADDRESS_TEXT];
    (void)lost;
    if (!reply) {
        return; /* on_down has dealt with it */
    }
    const char *sentinel = place_print(&seek->options.address->places[current(seek)], text);
    if (resp_check(reply, &err)) {
        err_prefix(&err, "%s", sentinel);
        failed(seek, &err);
    } else if (!read_place(seek, reply)) {
        err_set(&err, STATUS_UNAVAILABLE, "%s: this Sentinel knows no master named %s", sentinel,
                seek->options.address->master);
        failed(seek, &err);
    } else {
        drop_link(seek);
        connect_to(seek, &seek->named, false, on_server_up);
    }
}

static void on_sentinel_up(void *context)
{
    struct seek *seek = context;
    struct err err;
    const char *const words[] = {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", seek->options.address->master};
    if (link_command(seek->link, 3, words, NULL, share_ms(seek), on_named, seek, &err)) {
        failed(seek, &err);
    }
}

/* --- Life --------------------------------------------------------------------------------------------------------- */

static void on_begin(evutil_socket_t fd, short what, void *context)
{
    struct seek *seek = context;
    const struct address *address = seek->options.address;
    (void)fd;
    (void)what;
    if (seek->asked == address->place_count) {
        all_failed(seek);
    } else {
        bool sentinel = address->master != NULL;
        connect_to(seek, &address->places[current(seek)], sentinel, sentinel ? on_sentinel_up : on_server_up);
    }
}

enum status seek_open(const struct seek_options *options, struct seek **out, struct err *err)
{
    struct seek *seek = calloc(1, sizeof *seek);
    if (seek) {
        seek->options = *options;
        seek->begin = evtimer_new(options->base, on_begin, seek);
    }
    if (!seek || !seek->begin) {
        free(seek);
        return err_set(err, STATUS_NO_MEMORY, "no memory for a connection");
    }
    *out = seek;
    return STATUS_OK;
}

void seek_close(struct seek *seek)
{
    if (seek) {
        drop_link(seek);
        event_free(seek->begin);
        free(seek);
    }
}

void seek_start(struct seek *seek)
{
    seek_stop(seek);
    seek->asked = 0;
    seek->failed = (struct err){0};
    seek->unreachable = seek->denied = false;
    soon(seek);
}

void seek_stop(struct seek *seek)
{
    if (seek) {
        event_del(seek->begin);
        drop_link(seek);
    }
}
