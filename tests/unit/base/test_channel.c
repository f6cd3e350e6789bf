/* Channels: order, bounds, closing, the eventfd, and many threads at once.
 * ctest: threads */
#include "harness.h"

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/channel.h"

static struct channel *open_channel(size_t capacity, int fd)
{
    struct channel *channel;
    struct err err;
    assert_int_equal(channel_open(capacity, fd, &channel, &err), STATUS_OK);
    return channel;
}

TEST(keeps_order_and_bound)
{
    int items[4];
    struct channel *channel = open_channel(3, -1);
    for (int i = 0; i < 3; i++) { assert_true(channel_try_send(channel, &items[i])); }
    assert_false(channel_try_send(channel, &items[3]));
    for (int i = 0; i < 3; i++) { assert_ptr_equal(channel_receive(channel), &items[i]); }
    assert_null(channel_try_receive(channel));
    channel_free(channel);
}

TEST(closed_channel_drains)
{
    int item;
    struct channel *channel = open_channel(2, -1);
    assert_true(channel_send(channel, &item));
    channel_close(channel);
    assert_false(channel_send(channel, &item));
    assert_false(channel_try_send(channel, &item));
    assert_ptr_equal(channel_receive(channel), &item);
    assert_null(channel_receive(channel));
    channel_free(channel);
}

TEST(eventfd_wakes_when_it_fills)
{
    int item, fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    assert_true(fd >= 0);
    struct channel *channel = open_channel(2, fd);
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, 0), 0);
    assert_true(channel_send(channel, &item));
    assert_int_equal(poll(&wait, 1, 0), 1);
    assert_ptr_equal(channel_receive(channel), &item);
    channel_free(channel);
    close(fd);
}

enum { SENDERS = 3, RECEIVERS = 2, EACH = 20000 };

struct crowd {
    struct channel *channel;
    unsigned char seen[SENDERS * EACH];
    pthread_mutex_t lock;
};

struct sender {
    struct crowd *crowd;
    size_t first;
};

static void *send_all(void *argument)
{
    struct sender *sender = argument;
    for (size_t i = 0; i < EACH; i++) {
        if (!channel_send(sender->crowd->channel, &sender->crowd->seen[sender->first + i])) { return sender; }
    }
    return NULL;
}

static void *receive_all(void *argument)
{
    struct crowd *crowd = argument;
    unsigned char *item;
    while ((item = channel_receive(crowd->channel)) != NULL) { (*item)++; }
    return NULL;
}

TEST(nothing_is_lost_or_doubled)
{
    static struct crowd crowd;
    crowd.channel = open_channel(16, -1);
    pthread_t senders[SENDERS], receivers[RECEIVERS];
    struct sender from[SENDERS];
    for (size_t i = 0; i < RECEIVERS; i++) {
        assert_int_equal(pthread_create(&receivers[i], NULL, receive_all, &crowd), 0);
    }
    for (size_t i = 0; i < SENDERS; i++) {
        from[i] = (struct sender){&crowd, i * EACH};
        assert_int_equal(pthread_create(&senders[i], NULL, send_all, &from[i]), 0);
    }
    for (size_t i = 0; i < SENDERS; i++) {
        void *failed;
        pthread_join(senders[i], &failed);
        assert_null(failed);
    }
    channel_close(crowd.channel);
    for (size_t i = 0; i < RECEIVERS; i++) { pthread_join(receivers[i], NULL); }
    for (size_t i = 0; i < SENDERS * EACH; i++) { assert_int_equal(crowd.seen[i], 1); }
    channel_free(crowd.channel);
}
