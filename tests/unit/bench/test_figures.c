/* What the benchmarks count and print with: percentiles, arrivals, texts, option lists, tables. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/load.h"
#include "bench/report.h"
#include "harness.h"

static void quantiles_are_values_that_were_measured(void **state)
{
    (void)state;
    struct sample sample = {0};
    assert_true(isnan(sample_quantile(&sample, 0.5)));
    for (int i = 1000; i > 0; i--)
        sample_add(&sample, i);
    assert_true(sample_quantile(&sample, 0) == 1 && sample_quantile(&sample, 0.5) == 500);
    assert_true(sample_quantile(&sample, 0.99) == 990 && sample_quantile(&sample, 1) == 1000);
    sample_add(&sample, 5000);
    assert_true(sample_quantile(&sample, 1) == 5000);
    assert_false(sample.broken);
    sample_free(&sample);
}

/* Of a Poisson process: as many as were asked for, and gaps that vary as much as they last. */
static void arrivals_come_at_their_rate(void **state)
{
    (void)state;
    struct err err;
    struct arrivals arrivals, again;
    assert_int_equal(arrivals_make(500, 1, 100 * NS_PER_S, 7, &arrivals, &err), STATUS_OK);
    assert_in_range(arrivals.count, 49000, 51000);
    double sum = 0, squares = 0;
    for (size_t i = 1; i < arrivals.count; i++) {
        assert_true(arrivals.at_ns[i] >= arrivals.at_ns[i - 1]);
        double gap = (double)(arrivals.at_ns[i] - arrivals.at_ns[i - 1]);
        sum += gap;
        squares += gap * gap;
    }
    double mean = sum / (double)(arrivals.count - 1), variance = squares / (double)(arrivals.count - 1) - mean * mean;
    assert_true(fabs(sqrt(variance) / mean - 1) < 0.03);
    assert_true(arrivals.at_ns[arrivals.count - 1] < 100 * NS_PER_S);
    assert_int_equal(arrivals_make(500, 1, 100 * NS_PER_S, 7, &again, &err), STATUS_OK);
    assert_int_equal(again.count, arrivals.count);
    assert_memory_equal(again.at_ns, arrivals.at_ns, arrivals.count * sizeof *arrivals.at_ns);
    free(again.at_ns);
    assert_int_equal(arrivals_make(500, 1, 100 * NS_PER_S, 8, &again, &err), STATUS_OK);
    assert_true(again.at_ns[1] != arrivals.at_ns[1]);
    free(again.at_ns);
    free(arrivals.at_ns);
}

static void bursts_come_at_once(void **state)
{
    (void)state;
    struct err err;
    struct arrivals arrivals;
    assert_int_equal(arrivals_make(500, 32, 100 * NS_PER_S, 7, &arrivals, &err), STATUS_OK);
    assert_in_range(arrivals.count, 45000, 55000);
    assert_int_equal(arrivals.count % 32, 0);
    for (size_t i = 0; i < arrivals.count; i += 32)
        assert_true(arrivals.at_ns[i] == arrivals.at_ns[i + 31]);
    free(arrivals.at_ns);
    assert_int_equal(arrivals_make(0.001, 1, 1, 7, &arrivals, &err), STATUS_OK);
    assert_int_equal(arrivals.count, 1);
    free(arrivals.at_ns);
}

static void lists_are_read_whole_or_refused(void **state)
{
    (void)state;
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
    static const char *const known[] = {"off", "packed", NULL};
    assert_int_equal(numbers_parse_words("--ways", "packed,off", known, &numbers, &err), STATUS_OK);
    assert_true(numbers.count == 2 && numbers.items[0] == 1 && numbers.items[1] == 0);
    assert_int_equal(numbers_parse_words("--ways", "packed,", known, &numbers, &err), STATUS_BAD_INPUT);
    assert_int_equal(numbers_parse_words("--ways", "pack", known, &numbers, &err), STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, "\"pack\""));
}

static void a_sheet_is_the_same_in_both_forms(void **state)
{
    (void)state;
    static const struct column columns[] = {{"way", "way", SHEET_TEXT}, {"texts_per_s", "texts/s", 1}, {"n", "n", 0}};
    struct err err;
    struct sheet sheet;
    char *shown = NULL, written[4096] = "";
    size_t length;
    FILE *file = open_memstream(&shown, &length);
    sheet_begin(&sheet, "test", file);
    sheet_text(&sheet, "model", "a \"b\"\n");
    sheet_table(&sheet, "runs", columns, 3);
    sheet_row(&sheet, (struct cell[]){{"packed", 0}, {NULL, 12.34}, {NULL, 5}});
    sheet_row(&sheet, (struct cell[]){{"off", 0}, {NULL, NAN}, {NULL, 6}});
    sheet_table(&sheet, "none", columns, 3);
    sheet_number(&sheet, "worst", 0.5, 2);
    char path[] = "/tmp/sluice-sheet-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(sheet_end(&sheet, path, &err), STATUS_OK);
    assert_true(read(fd, written, sizeof written - 1) > 0);
    close(fd);
    unlink(path);
    fclose(file);
    assert_non_null(strstr(written, "\"model\": \"a \\\"b\\\"\\u000a\",\n  \"runs\": [\n"));
    assert_non_null(strstr(written, "    {\"way\": \"packed\", \"texts_per_s\": 12.3, \"n\": 5},\n"
                                    "    {\"way\": \"off\", \"texts_per_s\": null, \"n\": 6}\n  ],\n"
                                    "  \"none\": [],\n  \"worst\": 0.50\n}\n"));
    assert_non_null(strstr(shown, "packed        12.3         5\n"));
    assert_non_null(strstr(shown, "off              -         6\n"));
    assert_int_not_equal(sheet_end(&sheet, "/no/such/folder/x.json", &err), STATUS_OK);
    sheet_free(&sheet);
    free(shown);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(quantiles_are_values_that_were_measured),
    cmocka_unit_test(arrivals_come_at_their_rate),
    cmocka_unit_test(bursts_come_at_once),
    cmocka_unit_test(lists_are_read_whole_or_refused),
    cmocka_unit_test(a_sheet_is_the_same_in_both_forms),
};

TEST_MAIN(cases)
