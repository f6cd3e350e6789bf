/* The rights that each role needs in Redis, as commands to be tried dry (ACL DRYRUN): the ACL files in config/acl grant
 * these and nothing else, and a test holds the two together. */
#ifndef CLI_RIGHTS_H
#define CLI_RIGHTS_H

#include <stddef.h>

struct right {
    unsigned roles; /* enum role */
    /* Words with one space between them. @x is the queue's key x; @requests* each of the three streams. */
    const char *command;
};

const struct right *rights_table(size_t *count);

#endif
