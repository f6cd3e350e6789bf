/* What is known of one request: its reply, its place in `later` or in its stream, its record in `trouble`, its dead
 * letter. */
#ifndef REDIS_STORY_H
#define REDIS_STORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "redis/operator.h"
#include "redis/own_id.h"
#include "schedule/request.h"

enum { STORY_EVENTS = 8, STORY_TEXT = 800 };

/* What happened, or will. */
struct story_event {
    uint64_t at_ms; /* Redis' unix ms */
    const char *name;
    char text[STORY_TEXT];
};

/* Times are Redis' unix ms. What is not known is 0 or "". Texts are UTF-8; foreign bytes that are not, and those that
 * would control a terminal, are '?'. */
struct story {
    const char *status; /* done, error, cancelled, dead (its reply has expired), later, running, queued, unknown */
    struct own_id_found unfinished; /* by its own id, if the search was needed: all that have it; this is the newest */
    char name[REQUEST_NAME_MAX];
    enum request_class class; /* of `name` */
    char tenant[TENANT_MAX + 1];
    uint64_t now_ms, first_ms;

    uint64_t done_ms, expires_ms;       /* there is a reply */
    char queued_ms[24], compute_ms[24]; /* done; decimal */
    char code[32], message[256];        /* error, dead */
    char ignored[640];                  /* names of its unknown fields, with commas */
    char letter[ENTRY_ID_TEXT];         /* error, dead: its dead letter … */
    bool letter_gone;                   /* … which was requeued, deleted or trimmed */
    bool letters_left;                  /* unknown: there are more dead letters than were looked at */
    char worker[256];                   /* running, or pending with it although it held nothing (`idle`): queued */
    char consumer[256];                 /* queued: a consumer that is no worker and has read it … */
    bool foreign;                       /* … whose name may be empty */
    uint64_t held_ms, spoke_ms;         /* of those: since when; when the worker spoke last */
    bool idle;                          /* when it spoke, long after that, it held nothing */
    unsigned long deliveries;           /* of those */
    bool given_back, lost;              /* queued: by a worker that had it; read, and nobody's since */
    uint64_t due_ms;                    /* later */
    unsigned long attempts;             /* that failed; error, dead: all */
    unsigned long runs_alone, taken;    /* on record: see docs/protocol.md, `trouble` */
    char runs[256];                     /* on record: workers with an open run, with commas, + before one in a group */
    struct entry_id entry;              /* that carries it now */
    bool came_back;                     /* from `later`, as that entry */

    struct story_event events[STORY_EVENTS]; /* the oldest first */
    size_t event_count;
};

/* Gathers the story of a request by its name or its id. An id without a reply is searched for among `most` unfinished
 * requests. `tenant`: looks into its entry, too, for the tenant. Errors: those of the commands; STATUS_INTERNAL (a
 * record of another shape). */
MUST_CHECK enum status story_read(struct session *session, const char *id, uint64_t most, bool tenant,
                                  struct story *out, struct err *err);

/* Where a request without a reply is. */
struct place {
    const char *status;          /* as of struct story: "queued", "running", "later", "dead" or "unknown" */
    char name[REQUEST_NAME_MAX]; /* its name, if it was found by its own id; else "" */
    bool more;                   /* not found, and not everything was looked at */
    char worker[256];            /* running: whose it is */
    double due_at;               /* later: Redis' unix ms; else 0 */
    bool denied;                 /* the login may not ask where it is */
};

/* Finds the reply of a request by its id or name, or where it is; an id is searched for as by story_read. `*reply`:
 * NULL: there is none; owned by the session, as of session_ask. Errors: those of the commands. */
MUST_CHECK enum status request_find(struct session *session, const char *id, uint64_t most,
                                    const struct resp_value **reply, struct place *place, struct err *err);

/* Writes a story as an object. */
void json_put_story(FILE *to, const struct session *session, const char *id, const struct story *story);

#endif
