/* What the daemon tells over HTTP (setting `http`): /metrics, /healthz, /readyz, /depth. */
#ifndef DAEMON_MONITOR_H
#define DAEMON_MONITOR_H

#include "daemon/server.h"

/* Listens, if the configuration says where. Owns: the caller ends it with monitor_close, also after an error. Errors:
 * those of http_open and gpus_open. */
MUST_CHECK enum status monitor_open(struct server *server, struct err *err);

/* Closes the port. */
void monitor_close(struct server *server);

#endif
