/* The journal: synced records come back after a cut at any later byte; and no other process may write it. */
#include "harness.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bulk/journal.h"

struct seen {
    char terms[64];
    uint64_t seed;
    unsigned done, checkpoints;
    uint64_t rows; /* the sum of rows that are done */
    struct checkpoint last;
};

static enum status see(void *context, const struct journal_record *record, struct err *err)
{
    (void)err;
    struct seen *seen = context;
    if (record->kind == JOURNAL_TERMS) {
        snprintf(seen->terms, sizeof seen->terms, "%.*s", (int)record->terms_bytes, record->terms);
    }
    for (size_t i = 0; i < record->done_count; i++) {
        struct done done = journal_done(record, i);
        assert_int_equal(done.hash.low, done.row * 3);
        assert_int_equal(done.hash.high, ~done.row);
        seen->rows += done.row;
        seen->done++;
    }
    if (record->kind == JOURNAL_SEED) { seen->seed = record->seed; }
    if (record->kind == JOURNAL_CHECKPOINT) {
        seen->checkpoints++;
        seen->last = record->checkpoint;
    }
    return STATUS_OK;
}

/* The case that runs: its file, the journal that is open, what came back from it, and the last error. */
static char path[64];
static struct journal *journal;
static struct seen seen;
static struct err err;

static int begin(void **state)
{
    (void)state;
    strcpy(path, "/tmp/sluice-journal-XXXXXX");
    int fd = mkstemp(path);
    journal = NULL;
    return fd < 0 || close(fd) != 0;
}

static int end(void **state)
{
    (void)state;
    journal_close(journal);
    return unlink(path);
}

#define JOURNAL_TEST(name) TEST_WITH(name, begin, end)

/* Closes the journal, and opens it again. */
static void reopen(void)
{
    journal_close(journal);
    journal = NULL;
    seen = (struct seen){0};
    assert_int_equal(journal_open(path, see, &seen, &journal, &err), STATUS_OK);
}

/* Writes that these rows are done. */
static void write_done(uint64_t from, uint64_t to)
{
    for (; from < to; from++) { journal_add_done(journal, (struct done){from, {from * 3, ~from}}); }
    assert_int_equal(journal_seal(journal, &err), STATUS_OK);
    assert_int_equal(journal_write(journal, NULL, &err), STATUS_OK);
}

static const struct checkpoint checkpoint = {1, 2, 3, 4, 5, 6, {7, 8}, {9, 10, 11, 12}};

JOURNAL_TEST(comes_back)
{
    reopen();
    assert_int_equal(journal_put_terms(journal, "a=1\n", 4, &err), STATUS_OK);
    assert_int_equal(journal_put_seed(journal, 0xfedcba9876543210, &err), STATUS_OK);
    write_done(0, 10000); /* more than a record holds */
    assert_int_equal(journal_write(journal, &checkpoint, &err), STATUS_OK);
    reopen();
    assert_string_equal(seen.terms, "a=1\n");
    assert_true(seen.seed == 0xfedcba9876543210);
    assert_int_equal(seen.done, 10000);
    assert_int_equal(seen.rows, 49995000);
    assert_memory_equal(&seen.last, &checkpoint, sizeof checkpoint);
    write_done(10000, 10001);
    reopen();
    assert_int_equal(seen.done, 10001);
}

/* After a cut at any byte a prefix of the records comes back, and the journal goes on after it. */
JOURNAL_TEST(torn_anywhere)
{
    struct stat info;
    reopen();
    assert_int_equal(journal_put_terms(journal, "k=v\n", 4, &err), STATUS_OK);
    write_done(0, 2);
    assert_int_equal(journal_write(journal, &checkpoint, &err), STATUS_OK);
    assert_int_equal(stat(path, &info), 0);
    for (off_t length = info.st_size - 1; length >= 0; length--) {
        assert_int_equal(truncate(path, length), 0);
        reopen();
        assert_int_equal(seen.checkpoints, 0);
        assert_true(seen.done == 0 || seen.done == 2);
    }
    assert_int_equal(journal_put_terms(journal, "n=1\n", 4, &err), STATUS_OK);
    reopen();
    assert_string_equal(seen.terms, "n=1\n");
}

/* After a flipped bit in the middle the records before it come back, and the rest is done again. */
JOURNAL_TEST(a_wrong_bit_ends_it)
{
    unsigned char byte;
    reopen();
    for (uint64_t i = 0; i < 3; i++) { write_done(i, i + 1); }
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, 40 + 20), 1); /* in the second record */
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, 40 + 20), 1);
    close(fd);
    reopen();
    assert_int_equal(seen.done, 1);
    write_done(7, 8);
    reopen();
    assert_int_equal(seen.done, 2);
    assert_int_equal(seen.rows, 7);
}

JOURNAL_TEST(is_for_one_process)
{
    struct journal *second;
    reopen();
    assert_int_equal(journal_open(path, see, &seen, &second, &err), STATUS_UNAVAILABLE);
    assert_non_null(strstr(err.message, path));
}
