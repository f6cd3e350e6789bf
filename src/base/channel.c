/* A ring under a mutex. Items are whole requests and batches, thousands a second at most, so that an uncontended lock
 * costs far less than the work that each item stands for. */
#include "base/channel.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

struct channel {
    pthread_mutex_t lock;
    pthread_cond_t not_empty;
    pthread_cond_t not_full;
    size_t capacity;
    size_t first;
    size_t count;
    int wake_fd;
    bool closed;
    void *items[];
};

enum status channel_open(size_t capacity, int wake_fd, struct channel **out, struct err *err)
{
    struct channel *channel = calloc(1, sizeof *channel + capacity * sizeof channel->items[0]);
    if (!channel) { return err_set(err, STATUS_NO_MEMORY, "no memory for a channel of %zu items", capacity); }
    pthread_mutex_init(&channel->lock, NULL);
    pthread_cond_init(&channel->not_empty, NULL);
    pthread_cond_init(&channel->not_full, NULL);
    channel->capacity = capacity;
    channel->wake_fd = wake_fd;
    *out = channel;
    return STATUS_OK;
}

static void wake_reader(const struct channel *channel)
{
    if (channel->wake_fd < 0) { return; }
    const uint64_t one = 1;
    ssize_t written;
    do {
        written = write(channel->wake_fd, &one, sizeof one);
    } while (written < 0 && errno == EINTR);
}

static void push_item(struct channel *channel, void *item)
{
    channel->items[(channel->first + channel->count) % channel->capacity] = item;
    channel->count++;
    pthread_cond_signal(&channel->not_empty);
    if (channel->count == 1) { wake_reader(channel); }
}

static void *pop_item(struct channel *channel)
{
    void *item = channel->items[channel->first];
    channel->first = (channel->first + 1) % channel->capacity;
    channel->count--;
    pthread_cond_signal(&channel->not_full);
    return item;
}

bool channel_send(struct channel *channel, void *item)
{
    pthread_mutex_lock(&channel->lock);
    while (channel->count == channel->capacity && !channel->closed) {
        pthread_cond_wait(&channel->not_full, &channel->lock);
    }
    bool open = !channel->closed;
    if (open) { push_item(channel, item); }
    pthread_mutex_unlock(&channel->lock);
    return open;
}

bool channel_try_send(struct channel *channel, void *item)
{
    pthread_mutex_lock(&channel->lock);
    bool room = !channel->closed && channel->count < channel->capacity;
    if (room) { push_item(channel, item); }
    pthread_mutex_unlock(&channel->lock);
    return room;
}

void *channel_receive(struct channel *channel)
{
    pthread_mutex_lock(&channel->lock);
    while (channel->count == 0 && !channel->closed) { pthread_cond_wait(&channel->not_empty, &channel->lock); }
    void *item = channel->count > 0 ? pop_item(channel) : NULL;
    pthread_mutex_unlock(&channel->lock);
    return item;
}

void *channel_try_receive(struct channel *channel)
{
    pthread_mutex_lock(&channel->lock);
    void *item = channel->count > 0 ? pop_item(channel) : NULL;
    pthread_mutex_unlock(&channel->lock);
    return item;
}

void channel_close(struct channel *channel)
{
    pthread_mutex_lock(&channel->lock);
    channel->closed = true;
    pthread_cond_broadcast(&channel->not_empty);
    pthread_cond_broadcast(&channel->not_full);
    pthread_mutex_unlock(&channel->lock);
}

void channel_free(struct channel *channel)
{
    if (!channel) { return; }
    pthread_cond_destroy(&channel->not_full);
    pthread_cond_destroy(&channel->not_empty);
    pthread_mutex_destroy(&channel->lock);
    free(channel);
}
