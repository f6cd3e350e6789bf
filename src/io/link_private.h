/* What link.c (its life, commands and answers) and link_login.c (from a socket to "up") share. */
#ifndef IO_LINK_PRIVATE_H
#define IO_LINK_PRIVATE_H

#include "io/dial.h"
#include "io/link.h"
#include "io/refusal.h"

/* A command that waits for its answer. */
struct pending {
    struct pending *next;
    link_reply_fn *reply;
    void *context;
    uint64_t deadline_ns, timeout_ns; /* the first of them from when it was sent, and from the last progress on */
    size_t head_length;               /* of the command's first bytes, for a refusal */
    char head[REFUSAL_HEAD];
};

/* One connection; it goes connecting, up, dead, in this order, and may be closed at any time. */
struct link {
    struct link_options options;
    struct dial *dial;
    struct bufferevent *buffers; /* NULL until connected and when dead */
    struct ssl_st *session;      /* of TLS, owned by `buffers`; NULL without */
    struct resp_reader *reader;
    struct event *timer;
    uint64_t timer_ns;     /* when it fires; UINT64_MAX: not armed */
    uint64_t connect_ns;   /* when it has to be up */
    uint64_t heard, moved; /* bytes that have come; those, and what the socket has taken of ours */
    uint64_t counted;      /* `moved` when there was progress last, and when that was */
    uint64_t progress_ns;
    int left; /* bytes that the socket had still to send when that was looked at; -1: not since the last progress */
    struct pending *first, *last;
    size_t outstanding;
    unsigned greetings; /* answers of the login to come */
    bool secured;       /* the TLS handshake is over */
    bool up, dead, closed;
    unsigned busy;
};

/* Between these two a link is not freed, although a callback may close it: then link_leave frees it, so it may not be
 * touched behind that. They nest. */
void link_enter(struct link *link);
void link_leave(struct link *link);

/* Ends a link that is not dead yet: on_down, then the commands' NULLs. */
void link_die(struct link *link, const struct err *err);

/* Likewise, with the peer's name before the message. */
void link_die_because(struct link *link, enum status status, const char *message);

/* The host that a certificate has to bear; of an address with places only. */
const char *link_host(const struct link *link);

/* The socket has taken bytes of ours. */
struct evbuffer;
struct evbuffer_cb_info;
void link_on_written(struct evbuffer *output, const struct evbuffer_cb_info *info, void *link);

/* A buffer's bytes have come. */
void link_on_read(struct bufferevent *buffers, void *link);

/* The dial of link_open has ended (link_login.c). */
void link_on_dialled(void *link, int fd, const struct err *err);

/* What to say of a link that was not up in time (link_login.c). */
const char *link_stage(const struct link *link);

#endif
