/* The doctor: looks at everything that a queue stands on and says what it found, a line for each. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include "cli/session.h"
#include "io/rights.h"

/* How bad it is; any FINDING_FAIL makes the exit code one. */
enum finding { FINDING_OK, FINDING_WARN, FINDING_FAIL };

/* What the chapters share. */
struct doctor {
    struct session session;
    const struct config *config;
    unsigned role;      /* enum role: whose rights are looked at */
    const char *user;   /* NULL: who we have logged in as */
    struct buffer info; /* the server's INFO */
    unsigned warned, failed;
};

/* Prints one finding about `what` and counts it. */
void doctor_say(struct doctor *doctor, enum finding finding, const char *what, const char *format, ...)
    PRINTF_LIKE(4, 5);

/* A field of INFO; "" when the server does not tell. */
const char *doctor_info(const struct doctor *doctor, const char *name, char value[64]);

/* The chapters. Each prints what it finds, also when Redis refuses to tell. */
void doctor_server(struct doctor *doctor);     /* version, memory, clock */
void doctor_durability(struct doctor *doctor); /* which tier: what is lost when Redis or its machine dies */
void doctor_rights(struct doctor *doctor);     /* whether a login is needed; each right of the role */
void doctor_queue(struct doctor *doctor);      /* keys, group, workers, dead letters */
void doctor_model(struct doctor *doctor);      /* whether our model is the queue's */
void doctor_host(struct doctor *doctor);       /* the backend, and the libraries under this program */

#endif
