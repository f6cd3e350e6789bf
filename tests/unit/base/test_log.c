/* Log lines: one per event, nothing from outside can forge a second one, both formats stay well-formed when cut. And
 * the thread that writes them: nobody waits for a reader or a disk, and lost lines are counted.
 * ctest: threads */
#include "harness.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/utf8.h"

static char text[8192];

/* Reads available bytes into `text`, as a C string; waits for the first one. Returns their number. */
static size_t read_text(int fd)
{
    ssize_t length = read(fd, text, sizeof text - 1);
    assert_true(length >= 0);
    text[length] = '\0';
    return (size_t)length;
}

/* Sends the log into a pipe; returns its other end. */
static int open_reader(enum log_format format, int *writer)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    log_setup(LOG_INFO, format, ends[1]);
    *writer = ends[1];
    return ends[0];
}

static void close_log(int reader, int writer)
{
    assert_true(log_flush());
    log_setup(LOG_INFO, LOG_TEXT, 2);
    close(writer);
    close(reader);
}

/* Logs through a pipe and returns the line without its time stamp. */
static const char *logged(enum log_format format, const struct log_line *line)
{
    int writer, reader = open_reader(format, &writer);
    log_write(LOG_INFO, line);
    read_text(reader);
    close_log(reader, writer);
    return strchr(text, format == LOG_JSON ? ',' : ' ') + 1;
}

TEST(text_line_has_event_and_fields)
{
    assert_string_equal(logged(LOG_TEXT, &(struct log_line){"ready", log_str("model", "mini"), log_int("dim", 384),
                                                            log_double("share", 0.5)}),
                        "info ready model=mini dim=384 share=0.5\n");
    assert_string_equal(logged(LOG_TEXT, &(struct log_line){"bare"}), "info bare\n");
}

TEST(json_line_has_event_and_fields)
{
    assert_string_equal(logged(LOG_JSON, &(struct log_line){"ready", log_str("model", "a \"b\""), log_int("dim", -1)}),
                        "\"level\":\"info\",\"event\":\"ready\",\"model\":\"a \\\"b\\\"\",\"dim\":-1}\n");
}

TEST(values_cannot_forge_lines)
{
    assert_string_equal(logged(LOG_TEXT, &(struct log_line){"bad", log_str("id", "x\n2026 error forged=1")}),
                        "info bad id=\"x\\u000a2026 error forged=1\"\n");
}

TEST(oversized_value_is_cut)
{
    static char big[10000];
    memset(big, 'z', sizeof big);
    for (int format = LOG_TEXT; format <= LOG_JSON; format++) {
        const char *line = logged((enum log_format)format, &(struct log_line){"big", log_bytes("v", big, sizeof big)});
        size_t length = strlen(line);
        assert_true(length < 4200);
        assert_string_equal(line + length - (format == LOG_JSON ? 3 : 1), format == LOG_JSON ? "\"}\n" : "\n");
    }
}

TEST(bytes_that_are_no_text_make_no_bad_line)
{
    static const char name[] = "a\xff\xc3\xa9\xe6\x97z\xc2\x9b\x7f";
    assert_string_equal(
        logged(LOG_JSON, &(struct log_line){"open", log_str("m", name)}),
        "\"level\":\"info\",\"event\":\"open\",\"m\":\"a\\ufffd\xc3\xa9\\ufffd\\ufffdz\\u009b\\u007f\"}\n");
    assert_string_equal(logged(LOG_TEXT, &(struct log_line){"open", log_str("m", name)}),
                        "info open m=\"a\\ufffd\xc3\xa9\\ufffd\\ufffdz\\u009b\\u007f\"\n");
    assert_string_equal(logged(LOG_TEXT, &(struct log_line){"open", log_str("m", "\xc3\xa9")}),
                        "info open m=\xc3\xa9\n");
    for (size_t from = 0; from < 3; from++) { /* a text that is too long is not cut inside a character */
        static char big[9000];
        for (size_t i = 0; i < sizeof big; i++) { big[i] = "\xe6\x9d\xb1"[i % 3]; }
        const char *line = logged(LOG_JSON, &(struct log_line){"big", log_bytes(&"kkk"[from], big, sizeof big)});
        assert_true(utf8_valid(line, strlen(line)));
        assert_null(strstr(line, "\\ufffd"));
    }
}

TEST(least_level_is_kept)
{
    int writer, reader = open_reader(LOG_TEXT, &writer);
    log_set_level(LOG_WARN);
    log_info("quiet");
    log_warn("heard");
    log_set_level(LOG_INFO);
    assert_true(log_flush());
    read_text(reader);
    assert_null(strstr(text, "quiet"));
    assert_non_null(strstr(text, "warn heard\n"));
    close_log(reader, writer);
}

/* ---- where the lines go ---- */

/* The number after `key`=; fails if there is none. */
static uint64_t number_of(const char *line, const char *key)
{
    char word[32];
    snprintf(word, sizeof word, " %s=", key);
    const char *at = strstr(line, word);
    assert_non_null(at);
    return strtoull(at + strlen(word), NULL, 10);
}

/* Reads lines of a pipe. */
struct reader {
    FILE *from;
    char line[4200];
};

static const char *next_line(struct reader *reader)
{
    assert_non_null(fgets(reader->line, sizeof reader->line, reader->from));
    assert_int_equal(reader->line[strlen(reader->line) - 1], '\n');
    return reader->line;
}

/* Logs numbered lines to a pipe that nobody reads, until the first one and `more` others are dropped; returns how many
 * were logged. */
static uint64_t log_until_dropped(uint64_t more)
{
    static char padding[1000];
    uint64_t count = 0, before = log_dropped();
    memset(padding, 'p', sizeof padding);
    while (log_dropped() < before + 1 + more) {
        log_info("numbered", log_int("number", (int64_t)count++),
                 log_bytes("padding", padding, count % sizeof padding));
    }
    return count;
}

/* Nobody waits for a reader that stops. When it is back, it gets the lines that waited, then the number of missing
 * ones, and then the next ones. */
TEST(a_reader_that_stops_loses_lines_and_holds_up_nobody)
{
    int writer, end = open_reader(LOG_TEXT, &writer);
    for (int round = 0; round < 2; round++) {
        struct reader reader = {.from = fdopen(dup(end), "r")};
        uint64_t dropped = log_dropped(), logged = log_until_dropped(500), number = 0;
        assert_false(log_flush());
        dropped = log_dropped() - dropped;
        assert_int_equal(dropped, 501);
        while (!strstr(next_line(&reader), " warn log_lines_dropped ")) {
            assert_int_equal(number_of(reader.line, "number"), number++);
        }
        assert_int_equal(number_of(reader.line, "lines"), dropped);
        assert_int_equal(number_of(reader.line, "total"), log_dropped());
        assert_int_equal(number, logged - dropped);
        assert_true(log_flush());
        log_info("again");
        assert_non_null(strstr(next_line(&reader), " info again\n"));
        fclose(reader.from);
    }
    close_log(end, writer);
}

/* Another process may share the open file and have made it non-blocking: no line is lost for that reason. */
TEST(a_pipe_that_does_not_block_gets_all_lines)
{
    int writer, end = open_reader(LOG_TEXT, &writer);
    struct reader reader = {.from = fdopen(dup(end), "r")};
    uint64_t dropped = log_dropped();
    assert_int_equal(fcntl(writer, F_SETFL, O_NONBLOCK), 0);
    for (int i = 0; i < 2000; i++) { log_info("numbered", log_int("number", i), log_str("padding", "0123456789")); }
    assert_false(log_flush());
    for (uint64_t i = 0; i < 2000; i++) { assert_int_equal(number_of(next_line(&reader), "number"), i); }
    assert_int_equal(log_dropped(), dropped);
    fclose(reader.from);
    close_log(end, writer);
}

/* Asserts that the first line that could be written again is followed by the number of lost ones. */
static void assert_said(uint64_t lines)
{
    int writer, end = open_reader(LOG_TEXT, &writer);
    struct reader reader = {.from = fdopen(dup(end), "r")};
    log_info("written");
    assert_non_null(strstr(next_line(&reader), " info written\n"));
    assert_non_null(strstr(next_line(&reader), " warn log_lines_dropped "));
    assert_int_equal(number_of(reader.line, "lines"), lines);
    fclose(reader.from);
    close_log(end, writer);
}

TEST(lines_that_a_full_disk_does_not_take_are_counted)
{
    int full = open("/dev/full", O_WRONLY);
    assert_true(full >= 0);
    uint64_t dropped = log_dropped();
    log_setup(LOG_INFO, LOG_TEXT, full);
    for (int i = 0; i < 3; i++) { log_info("lost"); }
    assert_true(log_flush());
    assert_int_equal(log_dropped(), dropped + 3);
    assert_said(3);
    close(full);
}

/* A line that a full disk has cut does not spoil the next one. */
TEST(a_line_that_was_cut_ends)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){.rlim_cur = 50, .rlim_max = before.rlim_max};
    log_setup(LOG_INFO, LOG_TEXT, fileno(file));
    uint64_t dropped = log_dropped();
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    log_info("cut", log_str("value", "0123456789012345678901234567890123456789"));
    assert_true(log_flush());
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(log_dropped(), dropped + 1);
    log_info("whole");
    assert_true(log_flush());
    rewind(file);
    struct reader reader = {.from = file};
    assert_int_equal(strlen(next_line(&reader)), 50 + 1);
    assert_non_null(strstr(next_line(&reader), " info whole\n"));
    assert_int_equal(number_of(next_line(&reader), "lines"), 1);
    log_setup(LOG_INFO, LOG_TEXT, 2);
    fclose(file);
}

TEST(a_reader_that_is_gone_ends_nobody)
{
    int writer, reader = open_reader(LOG_TEXT, &writer);
    uint64_t dropped = log_dropped();
    close(reader);
    log_info("lost");
    assert_true(log_flush());
    assert_int_equal(log_dropped(), dropped + 1);
    assert_said(1);
    close(writer);
}

enum { THREADS = 4, LINES = 500 };

static void *log_many(void *number)
{
    char padding[400];
    memset(padding, 'p', sizeof padding);
    for (int i = 0; i < LINES; i++) {
        log_info("of", log_int("thread", *(int *)number), log_int("number", i),
                 log_bytes("padding", padding, (size_t)(i * 7) % sizeof padding));
    }
    return NULL;
}

TEST(lines_of_several_threads_are_whole_and_in_order)
{
    int writer, end = open_reader(LOG_TEXT, &writer), numbers[THREADS];
    uint64_t next[THREADS] = {0};
    pthread_t threads[THREADS];
    struct reader reader = {.from = fdopen(dup(end), "r")};
    for (int t = 0; t < THREADS; t++) {
        numbers[t] = t;
        assert_int_equal(pthread_create(&threads[t], NULL, log_many, &numbers[t]), 0);
    }
    for (int i = 0; i < THREADS * LINES; i++) {
        uint64_t thread = number_of(next_line(&reader), "thread");
        assert_true(thread < THREADS);
        assert_int_equal(number_of(reader.line, "number"), next[thread]++);
    }
    for (int t = 0; t < THREADS; t++) { pthread_join(threads[t], NULL); }
    fclose(reader.from);
    close_log(end, writer);
}
