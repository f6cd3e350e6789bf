/* A bounded queue of pointers between threads: the only way in which anything passes from one thread to another.
 *
 * A receiver in an event loop passes an eventfd at creation and drains with channel_try_receive when it becomes
 * readable; a receiver with its own thread blocks in channel_receive. */
#ifndef BASE_CHANNEL_H
#define BASE_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct channel;

/* Makes a channel for at most `capacity` items. `wake_fd` is an eventfd to write to when the channel stops being empty,
 * or -1. Owns: the caller owns the channel and the eventfd; items are moved, never freed here.
 * Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status channel_open(size_t capacity, int wake_fd, struct channel **out, struct err *err);

/* Puts an item in; waits while the channel is full. False when the channel was closed: the caller keeps the item.
 * Thread: any. */
MUST_CHECK bool channel_send(struct channel *channel, void *item);

/* Puts an item in unless the channel is full or closed. Thread: any. */
MUST_CHECK bool channel_try_send(struct channel *channel, void *item);

/* Takes the oldest item; waits while the channel is empty. NULL when it is closed and empty. Thread: any. */
void *channel_receive(struct channel *channel);

/* Takes the oldest item, or NULL when there is none. Thread: any. */
void *channel_try_receive(struct channel *channel);

/* Makes later sends fail; receivers still get the items that are in the channel. Thread: any. */
void channel_close(struct channel *channel);

/* Frees an empty channel that no thread uses any more. NULL is allowed. */
void channel_free(struct channel *channel);

#endif
