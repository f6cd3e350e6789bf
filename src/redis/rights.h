/* The commands that each role needs in Redis. A worker tries them when it joins (lua/join), the doctor with ACL DRYRUN.
 * The files in config/acl grant these and nothing else; a test compares the two, and another one the operator's rows
 * with what the operator's commands send. */
#ifndef REDIS_RIGHTS_H
#define REDIS_RIGHTS_H

#include <stddef.h>

/* The roles that need a right; several bits may be set. */
enum role { ROLE_WORKER = 1, ROLE_PRODUCER = 2, ROLE_OPERATOR = 4 };

/* A command that some roles must be allowed. */
struct right {
    unsigned roles; /* enum role */
    /* Words separated by one space. @x is the queue's key x, @requests* each of the three streams. */
    const char *command;
};

/* Returns the static table. Shapes: [*count]. */
const struct right *rights_table(size_t *count);

#endif
