/* The lease: renewed while the worker lives, and given up at its end with all entries that it has. */
#ifndef REDIS_QUEUE_LEASE_H
#define REDIS_QUEUE_LEASE_H

#include "redis/queue_task.h"

void queue_renew(struct task *task);   /* lua/renew */
void queue_release(struct task *task); /* gives entries back; signs the worker off: lua/release */

#endif
