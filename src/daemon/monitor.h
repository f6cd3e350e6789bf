/* What the daemon tells over HTTP (setting `http`): /metrics, /healthz, /readyz, /depth, the dashboard and its API. */
#ifndef DAEMON_MONITOR_H
#define DAEMON_MONITOR_H

#include "daemon/server.h"

/* Listens, if the configuration says where. Owns: the caller ends it with monitor_close, also after an error. Errors:
 * those of http_open, admin_open, gpus_open and config_http_token. */
MUST_CHECK enum status monitor_open(struct server *server, struct err *err);

/* Closes the port. */
void monitor_close(struct server *server);

#endif
