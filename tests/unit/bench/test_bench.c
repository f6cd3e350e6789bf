/* The parts of `sluice bench`: arrivals, percentiles, lists, children, and work that threads repeat.
 * ctest: threads */
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/engine_rate.h"
#include "bench/load.h"
#include "bench/report.h"
#include "bench/stage.h"
#include "harness.h"

TEST(quantiles_are_values_that_were_measured)
{
    struct sample sample = {0};
    assert_true(isnan(sample_quantile(&sample, 0.5)));
    for (int i = 1000; i > 0; i--) { sample_add(&sample, i); }
    assert_true(sample_quantile(&sample, 0) == 1 && sample_quantile(&sample, 0.5) == 500);
    assert_true(sample_quantile(&sample, 0.99) == 990 && sample_quantile(&sample, 1) == 1000);
    sample_add(&sample, 5000);
    assert_true(sample_quantile(&sample, 1) == 5000);
    assert_false(sample.broken);
    sample_free(&sample);
}

/* The arrivals are a Poisson process: their number is right, and the deviation of the gaps equals their mean. */
TEST(arrivals_come_at_their_rate)
{
    struct err err;
    struct arrivals arrivals, again;
    assert_int_equal(arrivals_make(500, 100 * NS_PER_S, 7, &arrivals, &err), STATUS_OK);
    assert_int_equal(arrivals.count, 50000);
    double sum = 0, squares = 0;
    for (size_t i = 1; i < arrivals.count; i++) {
        assert_true(arrivals.at_ns[i] >= arrivals.at_ns[i - 1]);
        double gap = (double)(arrivals.at_ns[i] - arrivals.at_ns[i - 1]);
        sum += gap;
        squares += gap * gap;
    }
    double mean = sum / (double)(arrivals.count - 1), variance = squares / (double)(arrivals.count - 1) - mean * mean;
    assert_true(fabs(sqrt(variance) / mean - 1) < 0.03);
    assert_in_range(arrivals.at_ns[arrivals.count - 1], 99 * NS_PER_S, 100 * NS_PER_S - 1);
    assert_int_equal(arrivals_make(500, 100 * NS_PER_S, 7, &again, &err), STATUS_OK);
    assert_int_equal(again.count, arrivals.count);
    assert_memory_equal(again.at_ns, arrivals.at_ns, arrivals.count * sizeof *arrivals.at_ns);
    free(again.at_ns);
    assert_int_equal(arrivals_make(500, 100 * NS_PER_S, 8, &again, &err), STATUS_OK);
    assert_true(again.at_ns[1] != arrivals.at_ns[1]);
    free(again.at_ns);
    free(arrivals.at_ns);
}

TEST(there_is_at_least_one_arrival)
{
    struct err err;
    struct arrivals arrivals;
    assert_int_equal(arrivals_make(0.001, 1, 7, &arrivals, &err), STATUS_OK);
    assert_int_equal(arrivals.count, 1);
    free(arrivals.at_ns);
}

TEST(lists_are_read_whole_or_refused)
{
    struct err err;
    struct numbers numbers;
    assert_int_equal(numbers_parse("--tokens", "16,64,256", 1, 256, &numbers, &err), STATUS_OK);
    assert_int_equal(numbers.count, 3);
    assert_true(numbers.items[0] == 16 && numbers.items[2] == 256);
    static const char *const wrong[] = {
        "",    ",",   "16,",   ",16", "16,,2", "0",
        "257", "1 2", "-1",    "x",   "16x",   "99999999999999999999",
        "+1",  " 16", "16;17", "1.5", "0x10",  "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(numbers_parse("--tokens", wrong[i], 1, 256, &numbers, &err), STATUS_BAD_INPUT);
        assert_non_null(strstr(err.message, "--tokens"));
    }
}

TEST(a_sheet_is_the_same_in_both_forms)
{
    static const struct column columns[] = {{"way", "way", REPORT_TEXT}, {"texts_per_s", "texts/s", 1}, {"n", "n", 0}};
    struct err err;
    struct report report;
    char *shown = NULL, written[4096] = "";
    size_t length;
    FILE *file = open_memstream(&shown, &length);
    report_begin(&report, "test", file);
    report_text(&report, "model", "a \"b\"\n");
    report_table(&report, "runs", columns, 3);
    report_row(&report, (const char *const[]){"packed"}, (const double[]){12.34, 5});
    report_row(&report, (const char *const[]){"off"}, (const double[]){NAN, 6});
    report_table(&report, "none", columns, 3);
    report_number(&report, "worst", 0.5, 2);
    char path[] = "/tmp/sluice-report-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(report_end(&report, path, &err), STATUS_OK);
    assert_true(read(fd, written, sizeof written - 1) > 0);
    close(fd);
    unlink(path);
    fclose(file);
    assert_non_null(strstr(written, "\"model\": \"a \\\"b\\\"\\u000a\",\n  \"runs\": [\n"));
    assert_non_null(strstr(written, "    {\"way\": \"packed\", \"texts_per_s\": 12.3, \"n\": 5},\n"
                                    "    {\"way\": \"off\", \"texts_per_s\": null, \"n\": 6}\n  ],\n"
                                    "  \"none\": [\n  ],\n  \"worst\": 0.50\n}\n"));
    assert_non_null(strstr(shown, "packed        12.3         5\n"));
    assert_non_null(strstr(shown, "off              -         6\n"));
    assert_int_not_equal(report_end(&report, "/no/such/folder/x.json", &err), STATUS_OK);
    report_free(&report);
    free(shown);
}

struct counts {
    atomic_int opened, closed, runs, fail_open, fail_at; /* which thread's open, which run fails; 0: none */
};

static enum status count_open(void *context, void **state, struct err *err)
{
    struct counts *counts = context;
    *state = counts;
    if (atomic_fetch_add(&counts->opened, 1) + 1 == atomic_load(&counts->fail_open)) {
        return err_set(err, STATUS_NO_MEMORY, "this one does not open");
    }
    return STATUS_OK;
}

static enum status count_turn(void *state, struct err *err)
{
    struct counts *counts = state;
    if (atomic_fetch_add(&counts->runs, 1) + 1 == atomic_load(&counts->fail_at)) {
        return err_set(err, STATUS_DEVICE_LOST, "this run fails");
    }
    usleep(1000);
    return STATUS_OK;
}

static void count_close(void *state)
{
    atomic_fetch_add(&((struct counts *)state)->closed, 1);
}

static enum status measure(struct counts *counts, double *rate, struct err *err)
{
    struct workload turns = {count_open, count_turn, count_close, counts};
    enum status status = workload_measure(&turns, 4, 50 * NS_PER_MS, rate, err);
    assert_int_equal(atomic_load(&counts->opened), 4);
    assert_int_equal(atomic_load(&counts->closed), 4);
    return status;
}

TEST(turns_of_all_threads_are_counted)
{
    struct counts counts = {0};
    struct err err;
    double rate;
    assert_int_equal(measure(&counts, &rate, &err), STATUS_OK);
    assert_true(atomic_load(&counts.runs) >= 8); /* for each thread one to warm up and one that counts */
    assert_true(rate > 0 && rate <= 4 * 1000);   /* a run takes a millisecond at least */
}

TEST(an_error_of_one_thread_ends_all)
{
    struct err err;
    double rate;
    struct counts no_open = {.fail_open = 2}, first = {.fail_at = 1}, later = {.fail_at = 8};
    assert_int_equal(measure(&no_open, &rate, &err), STATUS_NO_MEMORY);
    assert_string_equal(err.message, "this one does not open");
    assert_int_equal(measure(&first, &rate, &err), STATUS_DEVICE_LOST);
    assert_int_equal(measure(&later, &rate, &err), STATUS_DEVICE_LOST);
    assert_string_equal(err.message, "this run fails");
}

TEST(children_say_how_they_ended)
{
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
    while (child_running(&child)) { usleep(1000); }
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
