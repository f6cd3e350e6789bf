/* Work on several threads, and the children of a benchmark.
 * ctest: threads */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/stage.h"
#include "bench/engine.h"
#include "harness.h"

struct counts {
    atomic_int opened, closed, turns, fail_open, fail_at; /* which thread's open, which turn fails; 0: none */
};

static enum status count_open(void *context, void **state, struct err *err)
{
    struct counts *counts = context;
    *state = counts;
    if (atomic_fetch_add(&counts->opened, 1) + 1 == atomic_load(&counts->fail_open))
        return err_set(err, STATUS_NO_MEMORY, "this one does not open");
    return STATUS_OK;
}

static enum status count_turn(void *state, struct err *err)
{
    struct counts *counts = state;
    if (atomic_fetch_add(&counts->turns, 1) + 1 == atomic_load(&counts->fail_at))
        return err_set(err, STATUS_DEVICE_LOST, "this turn fails");
    usleep(1000);
    return STATUS_OK;
}

static void count_close(void *state)
{
    atomic_fetch_add(&((struct counts *)state)->closed, 1);
}

static enum status measure(struct counts *counts, double *rate, struct err *err)
{
    struct turns turns = {count_open, count_turn, count_close, counts};
    enum status status = turns_measure(&turns, 4, 50 * NS_PER_MS, rate, err);
    assert_int_equal(atomic_load(&counts->opened), 4);
    assert_int_equal(atomic_load(&counts->closed), 4);
    return status;
}

static void turns_of_all_threads_are_counted(void **state)
{
    (void)state;
    struct counts counts = {0};
    struct err err;
    double rate;
    assert_int_equal(measure(&counts, &rate, &err), STATUS_OK);
    assert_true(atomic_load(&counts.turns) >= 8); /* one to warm up and one that counts, of each */
    assert_true(rate > 0 && rate <= 4 * 1000);    /* a turn takes a millisecond at least */
}

static void an_error_of_one_thread_ends_all(void **state)
{
    (void)state;
    struct err err;
    double rate;
    struct counts no_open = {.fail_open = 2}, first = {.fail_at = 1}, later = {.fail_at = 8};
    assert_int_equal(measure(&no_open, &rate, &err), STATUS_NO_MEMORY);
    assert_string_equal(err.message, "this one does not open");
    assert_int_equal(measure(&first, &rate, &err), STATUS_DEVICE_LOST);
    assert_int_equal(measure(&later, &rate, &err), STATUS_DEVICE_LOST);
    assert_string_equal(err.message, "this turn fails");
}

static void children_say_how_they_ended(void **state)
{
    (void)state;
    char log[] = "/tmp/sluice-child-XXXXXX";
    int fd = mkstemp(log);
    struct child child;
    struct err err;
    struct buffer text = {0};
    assert_true(fd >= 0);
    close(fd);
    const char *const speaks[] = {"sh", "-c", "echo $WORD; exit 3", NULL};
    char word[] = "WORD=bird", path[] = "PATH=/usr/bin:/bin";
    char *const environment[] = {word, path, NULL};
    assert_int_equal(child_start(&child, "a shell", speaks, environment, log, &err), STATUS_OK);
    while (child_running(&child))
        usleep(1000);
    assert_int_equal(child.exit_code, 3);
    assert_int_equal(child_gone(&child, &err), STATUS_UNAVAILABLE);
    assert_non_null(strstr(err.message, "a shell has ended with 3"));
    assert_non_null(strstr(err.message, "bird"));

    const char *const stays[] = {"sleep", "1000", NULL};
    assert_int_equal(child_start(&child, "sleep", stays, NULL, log, &err), STATUS_OK);
    assert_true(child_running(&child));
    child_stop(&child, SIGTERM, 60000);
    assert_false(child_running(&child));
    assert_int_equal(child.exit_code, 128 + SIGTERM);
    const char *const deaf[] = {"sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.01; done", NULL};
    assert_int_equal(child_start(&child, "sh", deaf, NULL, log, &err), STATUS_OK);
    do {
        buffer_free(&text);
        assert_int_equal(child_read_log(&child, &text, &err), STATUS_OK);
    } while (text.data == NULL || strstr(text.data, "deaf") == NULL);
    child_stop(&child, SIGTERM, 10);
    assert_int_equal(child.exit_code, 128 + SIGKILL);
    const char *const nothing[] = {"/no/such/program", NULL};
    assert_int_equal(child_start(&child, "nothing", nothing, NULL, log, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.message, "/no/such/program"));
    assert_false(child_running(&child));
    buffer_free(&text);
    unlink(log);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(turns_of_all_threads_are_counted),
    cmocka_unit_test(an_error_of_one_thread_ends_all),
    cmocka_unit_test(children_say_how_they_ended),
};

TEST_MAIN(cases)
