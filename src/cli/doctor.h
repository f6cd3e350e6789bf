/* What the checks of sluice doctor share: the state, the findings, and questions to the server. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include "cli/invocation.h"
#include "config/config.h"

/* The severity of a finding; any FINDING_FAIL makes the exit code one. */
enum finding { FINDING_OK, FINDING_WARN, FINDING_FAIL };

/* The state that the checks share. */
struct doctor {
    struct session session;
    const struct config *config;
    unsigned role;           /* enum role: whose rights to check; 0: not guessed yet */
    const char *user;        /* NULL: the user that we are logged in as */
    struct resp_value *info; /* the answer of INFO */
    struct model *model;     /* of the queue's settings; NULL: it does not open, and no_model says why */
    struct err no_model;
    unsigned warned, failed;
};

/* Prints and counts a finding about `what`. */
void doctor_report(struct doctor *doctor, enum finding finding, const char *what, const char *format, ...)
    PRINTF_LIKE(4, 5);

/* A field of INFO; "" if the server does not give it. */
const char *doctor_info(const struct doctor *doctor, const char *name, char value[64]);

/* Reads a value by CONFIG GET; "" if we may not ask. */
enum { SETTING_MAX = 256 };
void doctor_setting(struct doctor *doctor, const char *name, char value[SETTING_MAX]);

/* Asks whether the user may send the command. STATUS_OK with "" means yes, with a text no. Shapes: spelled
 * [DOCTOR_COMMAND] at most. */
enum { DOCTOR_COMMAND = 1024 };
enum status doctor_try(struct doctor *doctor, const char *user, const char *spelled, char answer[256], struct err *err);

/* doctor_server.c: the Redis server: version, memory, writes, clock, durability. */
void doctor_check_server(struct doctor *doctor);

/* doctor_rights.c: each command that the role sends, asked about with ACL DRYRUN. */
void doctor_check_rights(struct doctor *doctor);

/* doctor_queue.c: the queue of the session: its keys and their types, its workers, its model and limits compared with
 * ours. */
void doctor_check_queue(struct doctor *doctor);

/* doctor_queue.c: streams that no worker reads. */
void doctor_check_strays(struct doctor *doctor, const struct config *configs, size_t count);

#endif
