/* A thread pool: every item comes back once, worked on; stopping finishes all items.
 * ctest: threads */
#include "harness.h"

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "compute/thread_pool.h"

struct item {
    unsigned number, square, worked;
};

struct client {
    unsigned done; /* by this thread */
};

static void square(void *context, void *item)
{
    struct item *it = item;
    struct client *client = context;
    it->square = it->number * it->number;
    it->worked++;
    if (client != NULL) { client->done++; }
}

static struct thread_pool *start(unsigned threads, size_t capacity, int wake_fd, struct client *clients)
{
    struct thread_pool_options options = {.name = "test",
                                          .threads = threads,
                                          .capacity = capacity,
                                          .wake_fd = wake_fd,
                                          .work = square,
                                          .contexts = clients,
                                          .context_bytes = sizeof *clients};
    struct thread_pool *pool = NULL;
    struct err err;
    assert_int_equal(thread_pool_open(&options, &pool, &err), STATUS_OK);
    return pool;
}

TEST(everything_comes_back_once)
{
    enum { ITEMS = 20000, THREADS = 4, CAPACITY = 64 };
    struct client clients[THREADS] = {{0}};
    struct item *items = calloc(ITEMS, sizeof *items);
    struct thread_pool *pool = start(THREADS, CAPACITY, -1, clients);
    unsigned put = 0, taken = 0;
    while (taken < ITEMS) {
        while (put < ITEMS && thread_pool_out(pool) < CAPACITY) {
            items[put].number = put;
            thread_pool_put(pool, &items[put++]);
        }
        struct item *item = thread_pool_wait(pool);
        assert_non_null(item);
        taken++;
    }
    assert_null(thread_pool_wait(pool)); /* nothing is out, so it must not block */
    assert_null(thread_pool_take(pool));
    thread_pool_close(pool);
    unsigned done = 0;
    for (unsigned i = 0; i < THREADS; i++) { done += clients[i].done; }
    assert_int_equal(done, ITEMS);
    for (unsigned i = 0; i < ITEMS; i++) {
        assert_int_equal(items[i].worked, 1);
        assert_int_equal(items[i].square, i * i);
    }
    free(items);
}

TEST(one_thread_keeps_the_order)
{
    struct item items[32];
    struct thread_pool *pool = start(1, 32, -1, NULL);
    for (unsigned i = 0; i < 32; i++) {
        items[i] = (struct item){.number = i};
        thread_pool_put(pool, &items[i]);
    }
    for (unsigned i = 0; i < 32; i++) { assert_ptr_equal(thread_pool_wait(pool), &items[i]); }
    thread_pool_close(pool);
}

/* The test acts as an event loop: it sleeps on the eventfd, then takes all finished items. */
TEST(the_eventfd_wakes_for_every_item)
{
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct thread_pool *pool = start(2, 8, fd, NULL);
    struct item items[1000];
    unsigned put = 0, taken = 0;
    while (taken < 1000) {
        while (put < 1000 && thread_pool_out(pool) < 8) {
            items[put] = (struct item){.number = put};
            thread_pool_put(pool, &items[put++]);
        }
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&poll_fd, 1, 60000), 1);
        uint64_t count;
        assert_int_equal(read(fd, &count, sizeof count), sizeof count);
        while (thread_pool_take(pool) != NULL) { taken++; }
    }
    thread_pool_close(pool);
    close(fd);
}

static void hold_up(void *context, void *item)
{
    pthread_mutex_t *gate = context;
    (void)item;
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
}

/* Four items wait behind one gate: only after the third and the fourth are fewer than two left. */
TEST(an_owner_with_much_to_do_is_not_woken)
{
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    struct thread_pool_options options = {.name = "test",
                                          .threads = 1,
                                          .capacity = 4,
                                          .wake_fd = fd,
                                          .wake_below = 2,
                                          .work = hold_up,
                                          .contexts = &gate,
                                          .context_bytes = sizeof gate};
    struct thread_pool *pool;
    struct err err;
    struct item items[4];
    uint64_t woken;
    assert_int_equal(thread_pool_open(&options, &pool, &err), STATUS_OK);
    pthread_mutex_lock(&gate);
    for (unsigned i = 0; i < 4; i++) { thread_pool_put(pool, &items[i]); }
    pthread_mutex_unlock(&gate);
    for (unsigned i = 0; i < 4; i++) { assert_ptr_equal(thread_pool_wait(pool), &items[i]); }
    thread_pool_close(pool);
    assert_int_equal(read(fd, &woken, sizeof woken), sizeof woken);
    assert_int_equal(woken, 2);
    close(fd);
}

TEST(stopping_finishes_what_was_put)
{
    struct item items[16] = {{0}};
    struct thread_pool *pool = start(2, 16, -1, NULL);
    for (unsigned i = 0; i < 16; i++) { thread_pool_put(pool, &items[i]); }
    thread_pool_close(pool);
    for (unsigned i = 0; i < 16; i++) { assert_int_equal(items[i].worked, 1); }
}

/* Each thread takes up to three items, and finishes none before the test permits it. */
struct hoard {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    unsigned holds[2], held;
    bool let_go;
};

struct hoarder {
    struct hoard *hoard;
    unsigned number;
};

static void hoard_items(void *context, struct thread_slot *slot)
{
    const struct hoarder *hoarder = context;
    struct hoard *hoard = hoarder->hoard;
    void *item;
    while ((item = thread_pool_next(slot)) != NULL) {
        void *items[3] = {item};
        unsigned count = 1;
        pthread_mutex_lock(&hoard->lock);
        for (;;) {
            hoard->held += (hoard->holds[hoarder->number] < count);
            hoard->holds[hoarder->number] = count;
            pthread_cond_broadcast(&hoard->moved);
            if (hoard->let_go) { break; }
            pthread_mutex_unlock(&hoard->lock);
            item = count < 3 ? thread_pool_next(slot) : NULL;
            pthread_mutex_lock(&hoard->lock);
            if (item != NULL) { items[count++] = item; }
        }
        hoard->holds[hoarder->number] = 0;
        pthread_mutex_unlock(&hoard->lock);
        while (count > 0) { thread_pool_finish(slot, items[--count]); }
    }
}

/* When all `count` items are held, neither thread has two more than the other. */
static void check_held(struct hoard *hoard, unsigned count)
{
    pthread_mutex_lock(&hoard->lock);
    while (hoard->held < count) { pthread_cond_wait(&hoard->moved, &hoard->lock); }
    assert_in_range(hoard->holds[0], count / 2, (count + 1) / 2);
    assert_int_equal(hoard->holds[0] + hoard->holds[1], count);
    pthread_mutex_unlock(&hoard->lock);
}

TEST(items_go_to_who_has_least)
{
    for (unsigned round = 0; round < 300; round++) {
        struct hoard hoard = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
        struct hoarder hoarders[2] = {{&hoard, 0}, {&hoard, 1}};
        struct thread_pool_options options = {.name = "test",
                                              .threads = 2,
                                              .capacity = 8,
                                              .wake_fd = -1,
                                              .serve = hoard_items,
                                              .contexts = hoarders,
                                              .context_bytes = sizeof hoarders[0]};
        struct thread_pool *pool;
        struct err err;
        struct item items[6];
        assert_int_equal(thread_pool_open(&options, &pool, &err), STATUS_OK);
        for (unsigned put = 0; put < 6;) {
            for (unsigned burst = 1 + round % 6; burst > 0 && put < 6; burst--) {
                thread_pool_put(pool, &items[put++]);
            }
            check_held(&hoard, put);
        }
        pthread_mutex_lock(&hoard.lock);
        hoard.let_go = true;
        pthread_mutex_unlock(&hoard.lock);
        for (unsigned i = 0; i < 6; i++) { assert_non_null(thread_pool_wait(pool)); }
        thread_pool_close(pool);
    }
}

static void leave_at_once(void *context, struct thread_slot *slot)
{
    (void)context;
    (void)slot;
}

TEST(what_nobody_takes_can_be_taken_back)
{
    struct thread_pool_options options = {
        .name = "test", .threads = 2, .capacity = 3, .wake_fd = -1, .serve = leave_at_once};
    struct thread_pool *pool;
    struct err err;
    struct item items[3];
    assert_int_equal(thread_pool_open(&options, &pool, &err), STATUS_OK);
    thread_pool_put(pool, &items[1]);
    thread_pool_put(pool, &items[2]);
    thread_pool_put_first(pool, &items[0]);
    assert_null(thread_pool_take(pool));
    for (unsigned i = 0; i < 3; i++) { assert_ptr_equal(thread_pool_take_back(pool), &items[i]); }
    assert_null(thread_pool_take_back(pool));
    assert_null(thread_pool_wait(pool));
    thread_pool_close(pool);
}

TEST(free_of_nothing_is_allowed)
{
    thread_pool_close(NULL);
}
