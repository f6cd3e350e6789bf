/* Measurements that are kept in files: all processes read one result, and whatever is wrong with a file or folder only
 * costs another measurement. */
#include "harness.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/kept.h"

static const char head[] = "sluice test 1\nprocessor a\n", other_head[] = "sluice test 1\nprocessor b\n";

static void open_folder(char folder[64])
{
    strcpy(folder, "/tmp/sluice-kept-XXXXXX");
    assert_non_null(mkdtemp(folder));
}

static void remove_folder(const char *folder)
{
    char command[80];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void write_text(const char *folder, const char *of, const char *words)
{
    struct kept kept;
    struct buffer text = {0};
    buffer_string(&text, words);
    kept_open(&kept, folder, "test", of);
    kept_write(&kept, &text);
    kept_close(&kept);
    buffer_free(&text);
}

static void expect_text(const char *folder, const char *of, const char *words)
{
    struct kept kept;
    kept_open(&kept, folder, "test", of);
    assert_string_equal(kept.text, words);
    kept_close(&kept);
}

/* The path of the file with that head. */
static void find_file(const char *folder, const char *of, char path[FILE_PATH_BYTES])
{
    struct kept kept;
    struct err err;
    kept_open(&kept, folder, "test", of);
    assert_int_equal(file_path(folder, kept.name, path, &err), STATUS_OK);
    kept_close(&kept);
}

TEST(a_text_is_kept_for_its_head)
{
    char folder[64];
    open_folder(folder);
    expect_text(folder, head, "");
    write_text(folder, head, "times 12345 6\n");
    write_text(folder, other_head, "times 7 8\n");
    expect_text(folder, head, "times 12345 6\n");
    expect_text(folder, other_head, "times 7 8\n");
    write_text(folder, head, "9\n");
    expect_text(folder, head, "9\n");
    remove_folder(folder);
}

TEST(a_file_with_another_head_is_replaced)
{
    char folder[64], path[FILE_PATH_BYTES];
    open_folder(folder);
    find_file(folder, head, path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("sluice test 1\nprocessor c\ntimes 1 2 3 4 5 6 7 8 9\n", file);
    assert_int_equal(fclose(file), 0);
    expect_text(folder, head, "");
    write_text(folder, head, "1\n");
    expect_text(folder, head, "1\n");
    remove_folder(folder);
}

TEST(without_a_folder_nothing_is_kept)
{
    write_text("", head, "times 1 2\n");
    expect_text("", head, "");
}

/* A file in the place of the folder, and a folder in the place of the file. */
TEST(a_folder_that_cannot_be_written_is_as_none)
{
    char folder[64], path[FILE_PATH_BYTES];
    struct stat info;
    open_folder(folder);
    find_file(folder, head, path);
    write_text(path, head, "times 1 2\n");
    expect_text(path, head, "");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    write_text(folder, head, "times 1 2\n");
    expect_text(folder, head, "");
    assert_int_equal(stat(path, &info), 0);
    assert_true(S_ISDIR(info.st_mode));
    remove_folder(folder);
}

/* A symbolic link is such a file, also for root. */
TEST(a_file_that_cannot_be_written_is_read)
{
    char folder[64], path[FILE_PATH_BYTES], target[FILE_PATH_BYTES + 4];
    open_folder(folder);
    write_text(folder, head, "times 1 2\n");
    find_file(folder, head, path);
    snprintf(target, sizeof target, "%s.old", path);
    assert_int_equal(rename(path, target), 0);
    assert_int_equal(symlink(target, path), 0);
    write_text(folder, head, "times 3 4\n");
    expect_text(folder, head, "times 1 2\n");
    remove_folder(folder);
}

enum { PROCESSES = 6, ROUNDS = 20 };

/* Measures, unless another process has: each would find its own number. */
static int measure_once(const char *folder, int number)
{
    struct kept kept;
    kept_open(&kept, folder, "test", head);
    if (sscanf(kept.text, "%d", &number) != 1) {
        struct buffer text = {0};
        for (int i = 0; i < 10; i++) { sched_yield(); }
        buffer_format(&text, "%d\n", number);
        kept_write(&kept, &text);
        buffer_free(&text);
    }
    kept_close(&kept);
    return number;
}

TEST(processes_that_start_together_have_one_result)
{
    int *found = mmap(NULL, PROCESSES * sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(found != MAP_FAILED);
    for (int round = 0; round < ROUNDS; round++) {
        char folder[64], byte;
        int gate[2], status;
        pid_t child[PROCESSES];
        open_folder(folder);
        assert_int_equal(pipe(gate), 0);
        for (int i = 0; i < PROCESSES; i++) {
            child[i] = fork();
            assert_true(child[i] >= 0);
            if (child[i] == 0) {
                close(gate[1]);
                bool opened = read(gate[0], &byte, 1) == 0; /* when the parent closes it */
                found[i] = measure_once(folder, i + 1);
                _exit(!opened);
            }
        }
        close(gate[0]);
        close(gate[1]);
        for (int i = 0; i < PROCESSES; i++) {
            assert_int_equal(waitpid(child[i], &status, 0), child[i]);
            assert_int_equal(status, 0);
        }
        for (int i = 0; i < PROCESSES; i++) { assert_int_equal(found[i], found[0]); }
        remove_folder(folder);
    }
    munmap(found, PROCESSES * sizeof *found);
}
