/* The story of one request: its reply, its place in `later` or in its stream, its record in `trouble`, its dead letter.
 */
#ifndef OPERATOR_STORY_H
#define OPERATOR_STORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "operator/own_id.h"
#include "operator/session.h"
#include "schedule/request.h"

enum { STORY_EVENTS = 8, STORY_TEXT = 800 };

/* An event that has happened, or will. */
struct story_event {
    uint64_t at_ms; /* Redis' unix ms */
    const char *name;
    char text[STORY_TEXT];
};

/* Times are Redis' unix ms. Unknown values are 0 or "". Texts are UTF-8; bytes that are not, or that would control a
 * terminal, become '?'. */
struct story {
    const char *status; /* done, error, cancelled, dead (its reply has expired), later, running, queued, unknown */
    struct own_id_found unfinished; /* all with this id of its own, if they were searched for; this is the newest */
    char name[REQUEST_NAME_MAX];
    enum request_class class; /* of `name` */
    char tenant[TENANT_MAX + 1];
    uint64_t now_ms, first_ms;

    uint64_t done_ms, expires_ms;       /* there is a reply */
    char queued_ms[24], compute_ms[24]; /* done; decimal */
    char code[32], message[256];        /* error, dead */
    char ignored[640];                  /* names of its unknown fields, separated by commas */
    char letter[ENTRY_ID_TEXT];         /* error, dead: its dead letter … */
    bool letter_gone;                   /* … which was requeued, deleted or trimmed */
    bool letters_left;                  /* unknown: not all dead letters were looked at */
    char worker[256];                   /* running; or queued, and pending with it although it is `idle` */
    char consumer[256];                 /* queued: a consumer that has read it but is no worker … */
    bool foreign;                       /* … whose name may be empty */
    uint64_t held_ms, spoke_ms;         /* when that one got it; when the worker's last heartbeat was */
    bool idle;                          /* at that heartbeat, long after it got the entry, it held nothing */
    unsigned long deliveries;           /* how often the entry was delivered */
    bool given_back, lost;              /* queued: by a worker that had it; read, and nobody has it since */
    uint64_t due_ms;                    /* later */
    unsigned long attempts;             /* failed ones; error, dead: all */
    unsigned long runs_alone, taken;    /* of its record: see docs/workers.md, `trouble` */
    char runs[256];        /* of its record: workers with an open run, with commas, + before one in a group */
    struct entry_id entry; /* the entry that carries it now */
    bool came_back;        /* it came back from `later`, as that entry */

    struct story_event events[STORY_EVENTS]; /* the oldest first */
    size_t event_count;
};

/* Gathers the story of a request by its name or its id. An id without a reply is searched for among `most` unfinished
 * requests. `tenant`: looks into its entry, too, for the tenant. Errors: those of the commands; STATUS_INTERNAL (a
 * record of another shape). */
MUST_CHECK enum status story_read(struct session *session, const char *id, uint64_t most, bool tenant,
                                  struct story *out, struct err *err);

/* The place of a request without a reply. */
struct place {
    const char *status;          /* as of struct story: "queued", "running", "later", "dead" or "unknown" */
    char name[REQUEST_NAME_MAX]; /* its name, if it was found by its own id; else "" */
    bool more;                   /* not found, and not everything was looked at */
    char worker[256];            /* running: the worker that has it */
    double due_at;               /* later: Redis' unix ms; else 0 */
    bool denied;                 /* the login is not allowed to ask where it is */
};

/* Finds the reply of a request by its id or name, or where the request is; searches for an id as story_read does.
 * `*reply`: NULL if there is none; the session owns it, as with session_ask. Errors: those of the commands. */
MUST_CHECK enum status story_find(struct session *session, const char *id, uint64_t most,
                                  const struct resp_value **reply, struct place *place, struct err *err);

#endif
