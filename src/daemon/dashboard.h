/* The files of the dashboard, embedded from src/daemon/dashboard/ by cmake/Dashboard.cmake. */
#ifndef DAEMON_DASHBOARD_H
#define DAEMON_DASHBOARD_H

#include <stddef.h>

enum { DASHBOARD_FILES = 3 };

struct dashboard_file {
    const char *path; /* of the HTTP port: "/", "/dashboard.css", "/dashboard.js" */
    const char *text; /* UTF-8, followed by a 0 */
    size_t length;    /* in bytes */
};

extern const struct dashboard_file dashboard_files[DASHBOARD_FILES];

#endif
