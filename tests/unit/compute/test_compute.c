/* The devices at work, on a backend whose passes end when the test says so: a free device takes the next batch, batches
 * of a lost one run elsewhere, and when the last one is lost everything comes back.
 *
 * ctest: threads
 */
#include "harness.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "compute/compute.h"
#include "engine/backend.h"
#include "fake_backend.h"

enum { DIM = 2, SLOTS = 3, DEVICES = FAKE_DEVICES, MOST = 64 };

/* The backend reads no weights, so this much of a model is enough. */
static const struct model bare = {.vocabulary = 100, .max_tokens = 8, .layer_count = 1, .hidden = DIM, .dim = DIM};

/* Every other row gets help. */
static bool gets_help(int32_t id)
{
    return id % 2 == 1;
}

/* ---- a bench of some devices, and batches of one row each ---- */

struct bench {
    unsigned count;
    struct backend_ops ops;
    struct engine *engines[DEVICES];
    struct device devices[DEVICES];
    struct compute *compute;
    struct row rows[MOST];
    int32_t ids[MOST];
    struct request request;
    unsigned put, back;
    unsigned background; /* background threads */
};

/* Engines alone. */
static struct bench *open_engines(unsigned count, unsigned slots)
{
    struct bench *bench = calloc(1, sizeof *bench);
    struct err err;
    assert_non_null(bench);
    fake_reset();
    fake.slots = slots;
    fake.device_count = DEVICES;
    bench->ops = fake_backend;
    bench->ops.helped = fake_helped;
    bench->count = count;
    for (unsigned i = 0; i < count; i++) {
        struct engine_options options = {.device = i};
        assert_int_equal(engine_open_with(&bench->ops, &bare, &options, &bench->engines[i], &err), STATUS_OK);
        bench->devices[i] = (struct device){.number = i, .engines = &bench->engines[i]};
    }
    return bench;
}

static enum status open_compute(struct bench *bench, unsigned threads, unsigned queued, struct err *err)
{
    struct compute_options options = {.devices = bench->devices,
                                      .device_count = bench->count,
                                      .engine_count = 1,
                                      .threads = threads,
                                      .queued = queued,
                                      .background = bench->background,
                                      .wake_fd = -1};
    return compute_open(&options, &bench->compute, err);
}

static struct bench *open_bench(unsigned count, unsigned slots, unsigned threads, unsigned queued)
{
    struct bench *bench = open_engines(count, slots);
    struct err err;
    assert_int_equal(open_compute(bench, threads, queued, &err), STATUS_OK);
    return bench;
}

static void put_as(struct bench *bench, bool background, bool first)
{
    unsigned at = bench->put++;
    struct row *row = &bench->rows[at];
    assert_true(at < MOST);
    bench->ids[at] = (int32_t)at + 1;
    *row = (struct row){.request = &bench->request, .ids = &bench->ids[at], .tokens = 1};
    struct batch *batch = batch_build(&row, 1, LAYOUT_PACKED, DIM);
    assert_non_null(batch);
    batch->background = background;
    batch->first = first;
    assert_true(compute_has_room(bench->compute, background));
    compute_put(bench->compute, 0, row, batch);
}

static void put(struct bench *bench)
{
    put_as(bench, false, false);
}

static void put_many(struct bench *bench, unsigned count)
{
    while (count-- > 0) { put(bench); }
}

static void hold_all(const struct bench *bench, bool held)
{
    for (unsigned i = 0; i < bench->count; i++) { fake_hold(i, held); }
}

static void wait_all_begun(const struct bench *bench, unsigned count)
{
    for (unsigned i = 0; i < bench->count; i++) { fake_wait_begun(i, count); }
}

static void check_back(struct bench *bench, struct batch *batch, const void *owner, enum status expected)
{
    assert_non_null(batch);
    assert_ptr_equal(owner, batch->rows[0]);
    assert_int_equal(batch->status, expected);
    bench->back++;
    if (expected == STATUS_OK) {
        assert_true(batch->engine.output[0] == (float)batch->engine.ids[0]);
        assert_true(batch->helped == gets_help(batch->engine.ids[0]));
        assert_true(batch->started_ns > 0 && batch->finished_ns >= batch->started_ns);
    }
    batch_free(batch);
}

/* Waits for a batch that is out. */
static struct batch *take_back(struct compute *compute, void **owner)
{
    struct batch *batch;
    while ((batch = compute_take(compute, owner)) == NULL) { nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL); }
    return batch;
}

/* Returns the row of the batch that came back. */
static const struct row *wait_one(struct bench *bench, enum status expected)
{
    void *owner = NULL;
    struct batch *batch = take_back(bench->compute, &owner);
    check_back(bench, batch, owner, expected);
    return owner;
}

static void wait_back(struct bench *bench, unsigned count, enum status expected)
{
    while (count-- > 0) { (void)wait_one(bench, expected); }
}

static void close_bench(struct bench *bench)
{
    assert_int_equal(bench->back, bench->put);
    assert_null(compute_take(bench->compute, NULL));
    compute_close(bench->compute);
    for (unsigned i = 0; i < bench->count; i++) { engine_close(bench->engines[i]); }
    free(bench);
}

/* ---- who takes what ---- */

TEST(two_batches_go_to_two_devices)
{
    for (unsigned round = 0; round < 200; round++) {
        struct bench *bench = open_bench(2, SLOTS, 1, 1);
        hold_all(bench, true);
        put_many(bench, 2);
        wait_all_begun(bench, 1);
        assert_int_equal(fake_begun(0) + fake_begun(1), 2);
        hold_all(bench, false);
        wait_back(bench, 2, STATUS_OK);
        close_bench(bench);
    }
}

TEST(a_free_device_takes_whatever_comes)
{
    struct bench *bench = open_bench(3, SLOTS, 1, 1);
    hold_all(bench, true);
    put_many(bench, 3);
    wait_all_begun(bench, 1);
    fake_hold(1, false);
    wait_back(bench, 1, STATUS_OK);
    for (unsigned i = 0; i < 20; i++) { /* the other two are always busy */
        put(bench);
        wait_back(bench, 1, STATUS_OK);
    }
    assert_int_equal(fake.devices[1].good, 21);
    fake_hold(0, false);
    fake_hold(2, false);
    wait_back(bench, 2, STATUS_OK);
    assert_int_equal(fake.devices[0].good + fake.devices[2].good, 2);
    close_bench(bench);
}

TEST(a_device_has_its_slots_full_and_never_more)
{
    struct bench *bench = open_bench(1, SLOTS, 1, 9);
    struct compute_state before = compute_state(bench->compute);
    assert_int_equal(before.threads, 1);
    assert_int_equal(before.batches, SLOTS + 9);
    fake_hold(0, true);
    fake_set_closed(true); /* so that all of them wait when the first one begins */
    put_many(bench, SLOTS + 9);
    assert_false(compute_has_room(bench->compute, false));
    fake_set_closed(false);
    fake_wait_begun(0, SLOTS);
    assert_int_equal(fake_begun(0), SLOTS);
    fake_hold(0, false);
    for (unsigned i = 0; i < SLOTS + 9; i++) { /* in the order in which they were put */
        assert_ptr_equal(wait_one(bench, STATUS_OK), &bench->rows[i]);
    }
    assert_int_equal(fake.devices[0].most, SLOTS);
    close_bench(bench);
}

TEST(a_batch_may_go_before_those_that_wait)
{
    static const unsigned order[] = {0, 2, 1};
    struct bench *bench = open_bench(1, 1, 1, 2);
    fake_hold(0, true);
    put(bench);
    fake_wait_begun(0, 1);
    put(bench);
    put_as(bench, false, true);
    fake_hold(0, false);
    for (unsigned i = 0; i < 3; i++) { assert_ptr_equal(wait_one(bench, STATUS_OK), &bench->rows[order[i]]); }
    close_bench(bench);
}

/* A device that computes on the calling thread has as many threads as are asked for. */
TEST(one_slot_means_several_threads)
{
    struct bench *bench = open_bench(2, 1, 3, 1);
    struct compute_state state_now = compute_state(bench->compute);
    assert_int_equal(state_now.threads, 6);
    assert_int_equal(state_now.batches, 12);
    assert_int_equal(state_now.devices, 2);
    hold_all(bench, true);
    put_many(bench, 12);
    wait_all_begun(bench, 3);
    assert_int_equal(fake_begun(0) + fake_begun(1), 6);
    hold_all(bench, false);
    wait_back(bench, 12, STATUS_OK);
    close_bench(bench);
}

/* ---- the background ---- */

static struct bench *open_with_background(unsigned count, unsigned slots, unsigned background)
{
    struct bench *bench = open_engines(count, slots);
    struct err err;
    bench->background = background;
    assert_int_equal(open_compute(bench, 2, 1, &err), STATUS_OK);
    return bench;
}

/* A background batch takes no room from others, and only background threads compute it. */
TEST(background_batches_have_threads_of_their_own)
{
    for (unsigned round = 0; round < 50; round++) {
        struct bench *bench = open_with_background(1, 1, 2);
        struct compute_state now = compute_state(bench->compute);
        assert_int_equal(now.threads, 2);
        assert_int_equal(now.batches, 4);
        assert_int_equal(now.background, 2);
        fake_hold(0, true);
        put_many(bench, 4);
        assert_false(compute_has_room(bench->compute, false));
        fake_wait_begun(0, 2);
        put_as(bench, true, false);
        put_as(bench, true, false);
        assert_false(compute_has_room(bench->compute, true));
        fake_wait_begun(0, 4);
        assert_int_equal(fake_begun(0), 4);
        fake_hold(0, false);
        wait_back(bench, 6, STATUS_OK);
        assert_true(compute_has_room(bench->compute, true) && compute_has_room(bench->compute, false));
        assert_int_equal(fake.devices[0].idle, 2);
        put_as(bench, true, false);
        wait_back(bench, 1, STATUS_OK);
        close_bench(bench);
    }
}

/* They wait for the maximum time, because the other batch does not end, and then go on. */
TEST(background_batches_make_way_for_others)
{
    struct bench *bench = open_with_background(1, 1, 1);
    fake_hold(0, true);
    put(bench);
    fake_wait_begun(0, 1);
    uint64_t begin = clock_now_ns();
    put_as(bench, true, false);
    fake_wait_begun(0, 2);
    assert_true(clock_now_ns() - begin >= COMPUTE_WAY_NS);
    fake_hold(0, false);
    wait_back(bench, 2, STATUS_OK);
    close_bench(bench);
}

TEST(background_batches_come_back_from_a_lost_device)
{
    struct bench *bench = open_with_background(1, 1, 1);
    fake_hold(0, true);
    put_many(bench, 4);
    put_as(bench, true, false);
    fake_wait_begun(0, 3);
    fake_lose(0);
    wait_back(bench, 5, STATUS_DEVICE_LOST);
    assert_int_equal(compute_state(bench->compute).background, 0);
    assert_false(compute_has_room(bench->compute, true));
    close_bench(bench);
}

/* A device that works by itself, or that is not the only one, has no background threads. */
TEST(not_every_device_has_background_threads)
{
    struct bench *bench = open_with_background(1, SLOTS, 2);
    assert_int_equal(compute_state(bench->compute).background, 0);
    close_bench(bench);
    bench = open_with_background(2, 1, 2);
    assert_int_equal(compute_state(bench->compute).background, 0);
    assert_int_equal(compute_state(bench->compute).threads, 4);
    close_bench(bench);
}

/* ---- devices that are lost ---- */

TEST(what_a_lost_device_had_runs_on_another)
{
    for (unsigned round = 0; round < 100; round++) {
        struct bench *bench = open_bench(2, SLOTS, 1, 4);
        hold_all(bench, true);
        put_many(bench, 14);
        wait_all_begun(bench, 1);
        fake_lose(round % 2);
        fake_hold((round + 1) % 2, false);
        wait_back(bench, 14, STATUS_OK);
        assert_int_equal(fake.devices[(round + 1) % 2].good, 14);
        struct compute_state after = compute_state(bench->compute);
        assert_int_equal(after.devices, 1);
        assert_int_equal(after.devices_lost, 1);
        assert_int_equal(after.threads, 1);
        assert_int_equal(after.batches, SLOTS + 4);
        put(bench);
        wait_back(bench, 1, STATUS_OK);
        close_bench(bench);
    }
}

/* A lost device gets no more batches, so the others take them. */
TEST(the_others_fill_their_slots_after_a_loss)
{
    struct bench *bench = open_bench(2, SLOTS, 1, 1);
    hold_all(bench, true);
    put_many(bench, 2);
    wait_all_begun(bench, 1);
    fake_lose(0);
    fake_hold(1, false);
    wait_back(bench, 2, STATUS_OK);
    unsigned before = fake_begun(1);
    for (unsigned round = 1; round <= 10; round++) {
        fake_hold(1, true);
        fake_set_closed(true); /* so that all of them wait when the first one begins */
        put_many(bench, SLOTS);
        fake_set_closed(false);
        fake_wait_begun(1, before + round * SLOTS);
        fake_hold(1, false);
        wait_back(bench, SLOTS, STATUS_OK);
    }
    assert_int_equal(fake.devices[0].refused, 0);
    close_bench(bench);
}

TEST(a_device_that_is_lost_when_idle_is_seen_with_the_next_batch)
{
    struct bench *bench = open_bench(2, SLOTS, 1, 1);
    fake_lose(0);
    fake_lose(1);
    put(bench);
    wait_back(bench, 1, STATUS_DEVICE_LOST);
    assert_int_equal(compute_state(bench->compute).devices_lost, 2);
    close_bench(bench);
}

TEST(when_the_last_device_is_lost_everything_comes_back)
{
    for (unsigned round = 0; round < 100; round++) {
        struct bench *bench = open_bench(3, SLOTS, 1, 2);
        hold_all(bench, true);
        put_many(bench, 15);
        wait_all_begun(bench, 1);
        for (unsigned i = 0; i < 3; i++) { fake_lose((round + i) % 3); }
        wait_back(bench, 15, STATUS_DEVICE_LOST);
        assert_int_equal(compute_state(bench->compute).devices, 0);
        assert_int_equal(compute_state(bench->compute).devices_lost, 3);
        assert_false(compute_has_room(bench->compute, false));
        assert_null(compute_take(bench->compute, NULL));
        close_bench(bench);
    }
}

/* Two threads of one device find the loss one after the other, and it counts once. */
TEST(a_device_of_several_threads_is_lost_once)
{
    struct bench *bench = open_bench(2, 1, 4, 1);
    hold_all(bench, true);
    put_many(bench, 16);
    fake_wait_begun(0, 4);
    fake_lose(0);
    fake_hold(1, false);
    wait_back(bench, 16, STATUS_OK);
    assert_int_equal(fake.devices[1].good, 16);
    struct compute_state after = compute_state(bench->compute);
    assert_int_equal(after.devices_lost, 1);
    assert_int_equal(after.threads, 4);
    close_bench(bench);
}

TEST(a_device_that_was_lost_before_is_left_out)
{
    struct bench *bench = open_bench(2, SLOTS, 1, 1);
    compute_close(bench->compute);
    bench->devices[0].lost = true;
    bench->devices[0].engines = NULL;
    struct compute_options options = {
        .devices = bench->devices, .device_count = 2, .engine_count = 1, .queued = 1, .wake_fd = -1};
    struct err err;
    assert_int_equal(compute_open(&options, &bench->compute, &err), STATUS_OK);
    assert_int_equal(compute_state(bench->compute).devices, 1);
    assert_int_equal(compute_state(bench->compute).devices_lost, 1);
    put_many(bench, 4);
    wait_back(bench, 4, STATUS_OK);
    assert_int_equal(fake.devices[1].good, 4);
    close_bench(bench);
}

/* The middle device of three is lost, at the first or a later one of its threads; then all are. */
TEST(a_device_that_is_lost_while_it_is_opened_is_left_out)
{
    struct err err = {0};
    for (unsigned streams = 0; streams < 3; streams++) {
        struct bench *bench = open_engines(3, 1);
        fake.devices[1].breaks_at = streams + 1;
        assert_int_equal(open_compute(bench, 3, 1, &err), STATUS_OK);
        struct compute_state left = compute_state(bench->compute);
        assert_int_equal(left.devices, 2);
        assert_int_equal(left.devices_lost, 1);
        assert_int_equal(left.threads, 6);
        assert_int_equal(fake.devices[1].streams, 0);
        put_many(bench, left.batches);
        assert_false(compute_has_room(bench->compute, false));
        wait_back(bench, left.batches, STATUS_OK);
        assert_int_equal(fake.devices[0].good + fake.devices[2].good, left.batches);
        close_bench(bench);
    }
    struct bench *bench = open_engines(2, SLOTS);
    fake.devices[0].breaks_at = fake.devices[1].breaks_at = 1;
    assert_int_equal(open_compute(bench, 1, 1, &err), STATUS_DEVICE_LOST);
    assert_non_null(strstr(err.message, "none of the 2 devices works"));
    for (unsigned i = 0; i < 2; i++) { engine_close(bench->engines[i]); }
    free(bench);
}

/* A bad batch comes back with its error from any device, and no device is given up. */
TEST(a_bad_batch_is_nobodys_loss)
{
    struct bench *bench = open_bench(2, SLOTS, 1, 1);
    bench->ids[0] = 1;
    put(bench);
    wait_back(bench, 1, STATUS_OK);
    struct row *row = &bench->rows[1];
    bench->put++;
    bench->ids[1] = 100; /* the vocabulary ends before */
    *row = (struct row){.request = &bench->request, .ids = &bench->ids[1], .tokens = 1};
    struct batch *batch = batch_build(&row, 1, LAYOUT_PACKED, DIM);
    assert_non_null(batch);
    compute_put(bench->compute, 0, row, batch);
    wait_back(bench, 1, STATUS_BAD_INPUT);
    assert_int_equal(compute_state(bench->compute).devices_lost, 0);
    close_bench(bench);
}

/* ---- laying out on the thread that computes ---- */

struct turn {
    struct batch batch; /* as it is put: empty */
    struct batch *laid_out;
    struct row *row;
    unsigned begun, ended;
    enum status refuse;
    float seen;
};

static enum status lay_out(void *owner, struct batch *batch)
{
    struct turn *turn = owner;
    turn->begun++;
    assert_ptr_equal(batch, &turn->batch);
    if (turn->refuse != STATUS_OK) { return turn->refuse; }
    turn->laid_out = batch_build(&turn->row, 1, LAYOUT_PACKED, DIM);
    batch->engine = turn->laid_out->engine;
    return STATUS_OK;
}

static void look_at(void *owner, struct batch *batch)
{
    struct turn *turn = owner;
    turn->ended++;
    if (batch->status == STATUS_OK) { turn->seen = batch->engine.output[0]; }
    batch_free(turn->laid_out);
    turn->laid_out = NULL;
}

/* Three batches: the first is on a device that is lost, and the last cannot be laid out. */
TEST(batches_are_laid_out_where_they_run)
{
    struct bench *bench = open_engines(2, SLOTS);
    struct compute_options options = {.devices = bench->devices,
                                      .device_count = 2,
                                      .engine_count = 1,
                                      .queued = 2,
                                      .wake_fd = -1,
                                      .begin = lay_out,
                                      .end = look_at};
    struct err err;
    assert_int_equal(compute_open(&options, &bench->compute, &err), STATUS_OK);
    struct turn turns[3] = {{.refuse = STATUS_OK}, {.refuse = STATUS_OK}, {.refuse = STATUS_NO_MEMORY}};
    hold_all(bench, true);
    for (unsigned i = 0; i < 2; i++) {
        bench->ids[i] = (int32_t)i + 1;
        bench->rows[i] = (struct row){.request = &bench->request, .ids = &bench->ids[i], .tokens = 1};
        turns[i].row = &bench->rows[i];
        compute_put(bench->compute, 0, &turns[i], &turns[i].batch);
    }
    wait_all_begun(bench, 1);
    fake_lose(0);
    fake_hold(1, false);
    for (unsigned i = 0; i < 2; i++) { assert_int_equal(take_back(bench->compute, NULL)->status, STATUS_OK); }
    compute_put(bench->compute, 0, &turns[2], &turns[2].batch);
    assert_int_equal(take_back(bench->compute, NULL)->status, STATUS_NO_MEMORY);
    assert_int_equal(turns[0].begun + turns[1].begun, 3); /* one of them twice */
    for (unsigned i = 0; i < 3; i++) { assert_int_equal(turns[i].ended, turns[i].begun); }
    assert_true(turns[0].seen == 1 && turns[1].seen == 2);
    close_bench(bench);
}
