/* Names of queues and of workers, and the error for a worker whose precision a queue does not take. */
#ifndef REDIS_QUEUE_NAMES_H
#define REDIS_QUEUE_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum { QUEUE_NAME_MAX = 64, QUEUE_WORKER_MAX = 128, QUEUE_HOST_MAX = 64 };

/* True if it may be a queue's name: 1 to QUEUE_NAME_MAX of a-z 0-9 _ . - */
bool queue_name_is(const char *name, size_t length);

/* Writes this machine's name as its workers' names begin with it: letters, digits, dots, and - for all else. */
void queue_host(char host[QUEUE_HOST_MAX + 1]);

/* True if a consumer's name has the shape of a worker's: host, process id, eight hex digits. */
bool queue_worker_name_is(const char *name, size_t length);

/* Writes the name of a new worker of this process: its host, the process id and a random part. */
void queue_worker_name_make(char name[QUEUE_WORKER_MAX]);

/* Writes random bytes as hex digits. Shapes: to [2 * bytes + 1]; at most 16 bytes. */
void queue_put_random(char *to, size_t bytes);

/* The error with which a worker ends that computes in another precision than its queue is pinned to. Returns its
 * status. */
enum status queue_refuse_precision(const char *name, const char *pinned, const char *ours, struct err *err);

#endif
