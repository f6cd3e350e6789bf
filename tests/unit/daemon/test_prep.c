/* The prep pool and the compute threads with real requests: all come back, tokenised, computed and formatted, whatever
 * the number of threads; and the vectors do not depend on it.
 * ctest: threads
 */
#include "harness.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "compute/compute.h"
#include "daemon/prep.h"
#include "model_builder.h"

enum { REQUESTS = 1500, PATIENCE_MS = 60000 };

struct bench {
    char *directory;
    struct model *model;
    struct engine *engine;
    int wake_fd;
    struct prep *prep;
    struct prep_client *client;
    struct compute *compute;
};

static struct bench open_bench(unsigned prep_threads, unsigned compute_threads)
{
    struct bench bench = {.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    struct err err;
    struct model_spec spec = model_spec_tiny();
    bench.directory = model_build(&spec);
    assert_int_equal(model_open(bench.directory, &(struct model_options){0}, &bench.model, &err), STATUS_OK);
    struct engine_options options = {.backend = "cpu", .precision = PRECISION_F32};
    assert_int_equal(engine_open(bench.model, &options, &bench.engine, &err), STATUS_OK);
    assert_int_equal(prep_open(prep_threads, bench.wake_fd, &bench.prep, &err), STATUS_OK);
    bench.client = calloc(1, sizeof *bench.client);
    prep_add(bench.prep, bench.client, bench.model);
    struct device device = {.engines = &bench.engine};
    struct compute_options compute = {
        .devices = &device, .device_count = 1, .engine_count = 1, .threads = compute_threads, .wake_fd = bench.wake_fd};
    assert_int_equal(compute_open(&compute, &bench.compute, &err), STATUS_OK);
    return bench;
}

static void close_bench(struct bench *bench)
{
    prep_close(bench->prep);
    free(bench->client);
    compute_close(bench->compute);
    close(bench->wake_fd);
    engine_close(bench->engine);
    model_close(bench->model);
    model_build_remove(bench->directory);
}

static struct request *make_request_of(const struct bench *bench, uint64_t number, const char *text, size_t length)
{
    struct request_rules rules = {.model_name = "tiny",
                                  .model_id = bench->model->id,
                                  .encoding = ENCODING_F32,
                                  .dim = bench->model->dim,
                                  .max_tokens = bench->model->max_tokens,
                                  .max_text_bytes = 1 << 20,
                                  .default_ttl_s = 60,
                                  .max_ttl_s = 60,
                                  .error_ttl_s = 60,
                                  .default_max_attempts = 4,
                                  .truncate = true};
    struct entry_field fields[] = {
        {.name = "text", .name_length = 4, .value = text, .value_length = length},
    };
    struct entry entry = {.class = CLASS_NORMAL, .id = {.ms = 1, .seq = number}, .fields = fields, .field_count = 1};
    struct request *request = request_parse(&rules, &entry, 1);
    assert_non_null(request);
    assert_int_equal(request->retry.code, CODE_NONE);
    return request;
}

static struct request *make_request(const struct bench *bench, uint64_t number)
{
    char text[64];
    int length = snprintf(text, sizeof text, "a b c %llu %s", (unsigned long long)number, number % 3 ? "d e f" : "");
    return make_request_of(bench, number, text, (size_t)length);
}

static void wait_wake(const struct bench *bench)
{
    struct pollfd poll_fd = {.fd = bench->wake_fd, .events = POLLIN};
    assert_int_equal(poll(&poll_fd, 1, PATIENCE_MS), 1);
    uint64_t count;
    assert_int_equal(read(bench->wake_fd, &count, sizeof count), sizeof count);
}

/* Waits until `count` requests of a kind are back. */
static struct request_list collect(const struct bench *bench, enum prep_kind kind, uint32_t count)
{
    struct request_list *done = bench->client->done;
    while (done[kind].count < count) {
        wait_wake(bench);
        prep_take(bench->prep);
    }
    assert_int_equal(done[kind].count, count);
    assert_int_equal(done[PREP_KINDS - 1 - kind].count, 0);
    struct request_list taken = done[kind];
    done[kind] = (struct request_list){0};
    return taken;
}

static void compute_one(const struct bench *bench, struct request *request)
{
    struct row *row = &request->rows[0];
    struct batch *batch = batch_build(&row, 1, LAYOUT_PACKED, bench->model->dim);
    assert_non_null(batch);
    compute_put(bench->compute, 0, batch, batch);
    struct batch *done;
    void *owner;
    while ((done = compute_take(bench->compute, &owner)) == NULL) { wait_wake(bench); }
    assert_ptr_equal(done, batch);
    assert_ptr_equal(owner, batch);
    assert_int_equal(batch->status, STATUS_OK);
    assert_true(batch->finished_ns >= batch->started_ns && batch->started_ns > 0);
    memcpy(row->output, batch->engine.output, bench->model->dim * sizeof(float));
    batch_free(batch);
}

/* Sends more requests than all jobs together hold, so that some must wait inside. */
TEST(any_number_of_threads_prepares_all)
{
    for (unsigned threads = 1; threads <= 4; threads += 3) {
        struct bench bench = open_bench(threads, 2);
        struct request_list fresh = {0};
        uint64_t expected_sum = 0, sum = 0;
        for (uint64_t i = 0; i < REQUESTS * 4; i++) {
            request_list_push(&fresh, make_request(&bench, i));
            expected_sum += i;
            if (i % 97 == 0) { prep_put(bench.prep, bench.client, PREP_PREPARE, &fresh); }
        }
        prep_put(bench.prep, bench.client, PREP_PREPARE, &fresh);
        assert_int_equal(fresh.count, 0);
        struct request_list ready = collect(&bench, PREP_PREPARE, REQUESTS * 4);
        for (struct request *request; (request = request_list_pop(&ready)) != NULL;) {
            assert_int_equal(request->retry.code, CODE_NONE);
            assert_true(request->rows[0].tokens > 4);
            sum += request->identity.entry.seq;
            request_free(request);
        }
        assert_int_equal(sum, expected_sum);
        close_bench(&bench);
    }
}

/* Each client gets its own requests back, and a client with much work does not make another wait for the end of it. */
TEST(desks_take_turns)
{
    enum { MANY = 60000, FEW = 10 };
    struct bench bench = open_bench(1, 1);
    struct prep_client other;
    prep_add(bench.prep, &other, bench.model);
    struct request_list many = {0}, few = {0};
    for (uint64_t i = 0; i < MANY; i++) { request_list_push(&many, make_request(&bench, i)); }
    for (uint64_t i = 0; i < FEW; i++) { request_list_push(&few, make_request(&bench, MANY + i)); }
    prep_put(bench.prep, bench.client, PREP_PREPARE, &many);
    prep_put(bench.prep, &other, PREP_PREPARE, &few);
    while (other.done[PREP_PREPARE].count < FEW) {
        wait_wake(&bench);
        prep_take(bench.prep);
    }
    assert_true(bench.client->done[PREP_PREPARE].count < MANY);
    struct request_list back = collect(&bench, PREP_PREPARE, MANY);
    struct request *request;
    while ((request = request_list_pop(&back)) != NULL) {
        assert_true(request->identity.entry.seq < MANY);
        request_free(request);
    }
    while ((request = request_list_pop(&other.done[PREP_PREPARE])) != NULL) {
        assert_true(request->identity.entry.seq >= MANY);
        request_free(request);
    }
    close_bench(&bench);
}

static void free_list(struct request_list *list)
{
    for (struct request *request; (request = request_list_pop(list)) != NULL;) { request_free(request); }
}

/* Ten short texts come after a flood of long ones, all blanks, which are read to their end. However fast the threads
 * are, only the long texts already at work end before the first short one: two to a job, and one job fewer than there
 * are threads, but one for a single thread. All come back. */
TEST(short_texts_do_not_wait_for_a_flood_of_long_ones)
{
    enum { LONG = 200, SHORT = 10, BYTES = 100 * 1024 };
    char *blanks = malloc(BYTES);
    assert_non_null(blanks);
    memset(blanks, ' ', BYTES);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct bench bench = open_bench(threads, 1);
        struct request_list list = {0}, back = {0}, *done = &bench.client->done[PREP_PREPARE];
        for (uint64_t i = 0; i < LONG; i++) { request_list_push(&list, make_request_of(&bench, i, blanks, BYTES)); }
        prep_put(bench.prep, bench.client, PREP_PREPARE, &list);
        for (uint64_t i = 0; i < SHORT; i++) { request_list_push(&list, make_request(&bench, LONG + i)); }
        prep_put(bench.prep, bench.client, PREP_PREPARE, &list);
        while (back.count < LONG + SHORT) {
            wait_wake(&bench);
            prep_take(bench.prep);
            request_list_join(&back, done);
        }
        uint32_t before = 0;
        for (const struct request *request = back.first; request->identity.entry.seq < LONG; request = request->next) {
            before++;
        }
        assert_in_range(before, 0, 2 * (threads > 1 ? threads - 1 : 1));
        free_list(&back);
        close_bench(&bench);
    }
    free(blanks);
}

TEST(a_request_goes_the_whole_way)
{
    struct bench bench = open_bench(2, 2);
    struct request_list list = {0};
    for (uint64_t i = 0; i < 20; i++) { request_list_push(&list, make_request(&bench, i)); }
    prep_put(bench.prep, bench.client, PREP_PREPARE, &list);
    struct request_list prepared = collect(&bench, PREP_PREPARE, 20);
    for (struct request *request = prepared.first; request != NULL; request = request->next) {
        compute_one(&bench, request);
    }
    prep_put(bench.prep, bench.client, PREP_FORMAT, &prepared);
    struct request_list formatted = collect(&bench, PREP_FORMAT, 20);
    struct request *request;
    while ((request = request_list_pop(&formatted)) != NULL) {
        assert_int_equal(request->retry.code, CODE_NONE);
        assert_int_equal(request->output.reply.length, bench.model->dim * sizeof(float));
        assert_memory_equal(request->output.reply.data, request->rows[0].output, request->output.reply.length);
        request_free(request);
    }
    close_bench(&bench);
}

TEST(closing_nothing_is_allowed)
{
    prep_close(NULL);
    compute_close(NULL);
}
