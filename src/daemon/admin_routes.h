/* The paths of the admin API: what each asks or orders, and its answer in JSON (docs/admin-api.md). */
#ifndef DAEMON_ADMIN_ROUTES_H
#define DAEMON_ADMIN_ROUTES_H

#include "daemon/admin_job.h"

/* The route of a path; NULL: there is none. */
const struct route *admin_route(const char *path);

#endif
