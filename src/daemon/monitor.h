/* What the daemon tells over HTTP (setting `http`): /metrics, /healthz, /readyz, /depth. */
#ifndef DAEMON_MONITOR_H
#define DAEMON_MONITOR_H

#include "daemon/server.h"

/* Listens, if the configuration says where. Owns: server->http, which http_close ends. Errors: those of http_open. */
MUST_CHECK enum status monitor_open(struct server *server, struct err *err);

#endif
