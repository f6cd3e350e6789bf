/* The rights that each role needs in Redis, as commands to be tried dry: by a worker that joins (lua/join), by the
 * doctor (ACL DRYRUN). The ACL files in config/acl grant these and nothing else, and a test holds the two together. */
#ifndef IO_RIGHTS_H
#define IO_RIGHTS_H

#include <stddef.h>

/* Who needs a right; several bits may be set. */
enum role { ROLE_WORKER = 1, ROLE_PRODUCER = 2, ROLE_OPERATOR = 4 };

/* A command that some roles must be allowed. */
struct right {
    unsigned roles; /* enum role */
    /* Words with one space between them. @x is the queue's key x; @requests* each of the three streams. */
    const char *command;
};

/* The whole table. Shapes: [*count]; it is static. */
const struct right *rights_table(size_t *count);

#endif
