/* A gateway on a thread and a loop of its own. */
#ifndef GATEWAY_THREAD_H
#define GATEWAY_THREAD_H

#include "gateway/gateway.h"

struct config;
struct gateway_thread;

/* Opens a gateway to the configured queues on `listen`, with an extension unless that is NULL, and starts its thread,
 * on which on_denied is called (it may be NULL). Owns: the caller ends it with gateway_thread_stop; `config` must
 * outlive it. Errors: those of config_address, config_split and gateway_open; STATUS_IO. */
MUST_CHECK enum status gateway_thread_start(const struct config *config, const struct gateway_extension *extension,
                                            void *context, void (*on_denied)(void *context, const struct err *err),
                                            struct gateway_thread **out, struct err *err);

/* Takes no more calls, waits until those in flight have ended, at most grace_ms, gives up the others, and ends the
 * thread. NULL is allowed. Thread: not that of the gateway. */
void gateway_thread_stop(struct gateway_thread *thread, unsigned grace_ms);

#endif
