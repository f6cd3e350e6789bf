/* Vectors in their places, the table of equal texts, and the head of an .npy. */
#include "folder.h"
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bulk/dedup.h"
#include "bulk/output/files.h"
#include "bulk/output/store.h"

static uint64_t size_of(const char *name)
{
    char path[128];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return stat(path, &info) == 0 ? (uint64_t)info.st_size : UINT64_MAX;
}

/* Rows in any order over more files than are open at once; each one comes back. */
TEST_WITH(shards, folder_make, folder_remove)
{
    struct err err;
    struct store *store;
    struct store_options options = {.kind = STORE_SHARDS, .path = folder, .dim = 3, .shard_rows = 4};
    assert_int_equal(store_open(&options, &store, &err), STATUS_OK);
    enum { ROWS = 50 };
    for (uint64_t i = 0; i < ROWS; i++) {
        uint64_t row = i * 37 % ROWS;
        float vector[3] = {(float)row, -(float)row, 0.5F};
        assert_int_equal(store_put(store, row, 1, vector, &err), STATUS_OK);
    }
    float run[10][3];
    for (int i = 0; i < 10; i++) { /* rows 20 to 29, in four files */
        for (int d = 0; d < 3; d++) { run[i][d] = i == 0 ? NAN : (float)(120 + i); }
    }
    assert_int_equal(store_put(store, 20, 10, run[0], &err), STATUS_OK);
    assert_int_equal(store_finish(store, ROWS, &err), STATUS_OK);
    assert_int_equal(store_files(store, ROWS), 13);
    assert_int_equal(store_file_rows(store, ROWS, 0), 4);
    assert_int_equal(store_file_rows(store, ROWS, 12), 2);
    assert_int_equal(size_of("vectors-00012.npy"), NPY_HEADER_BYTES + 2 * 3 * 4);
    for (uint64_t row = 0; row < ROWS; row++) {
        float vector[3];
        assert_int_equal(store_get(store, row, vector, &err), STATUS_OK);
        bool again = row > 20 && row < 30;
        if (row == 20) {
            assert_true(isnan(vector[0]) && isnan(vector[2]));
        } else {
            assert_true(vector[0] == (float)(again ? row + 100 : row) && (vector[2] == 0.5F) != again);
        }
    }
    store_close(store);
}

TEST_WITH(halves, folder_make, folder_remove)
{
    struct err err;
    struct store *store;
    char path[128];
    snprintf(path, sizeof path, "%s/h.npy", folder);
    struct store_options options = {.kind = STORE_NPY, .path = path, .dim = 2, .element = ELEMENT_F16, .fresh = true};
    assert_int_equal(store_open(&options, &store, &err), STATUS_OK);
    enum { MANY = 40000 }; /* more than are encoded at once */
    float vector[2] = {1.0F / 3, -2}, nothing[2] = {NAN, NAN};
    float *many = malloc(MANY * sizeof vector);
    for (uint32_t i = 0; i < 2 * MANY; i++) { many[i] = (float)(i % 2048); }
    assert_int_equal(store_put(store, 2, MANY, many, &err), STATUS_OK);
    free(many);
    assert_int_equal(store_put(store, 1, 1, vector, &err), STATUS_OK);
    assert_int_equal(store_put(store, 0, 1, nothing, &err), STATUS_OK);
    assert_int_equal(store_finish(store, MANY + 2, &err), STATUS_OK);
    for (uint32_t i = 0; i < MANY; i += 19) {
        assert_int_equal(store_get(store, i + 2, vector, &err), STATUS_OK);
        assert_true(vector[0] == (float)(2 * i % 2048) && vector[1] == (float)((2 * i + 1) % 2048));
    }
    assert_int_equal(store_get(store, 1, vector, &err), STATUS_OK);
    assert_true(vector[0] == 0.333251953125F && vector[1] == -2);
    assert_int_equal(store_get(store, 0, vector, &err), STATUS_OK);
    assert_true(isnan(vector[0]));
    assert_int_equal(size_of("h.npy"), NPY_HEADER_BYTES + 4 * (MANY + 2));
    store_close(store);
}

TEST(headers_have_one_length)
{
    char header[NPY_HEADER_BYTES + 1] = "";
    npy_header(header, "<f4", 1000000000000ull, 4096);
    assert_memory_equal(header,
                        "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': "
                        "(1000000000000, 4096), }",
                        83);
    assert_int_equal(header[NPY_HEADER_BYTES - 1], '\n');
    npy_header(header, "<u8", 3, 0);
    assert_non_null(strstr(header + 10, "(3,), }"));
}

TEST_WITH(tails_are_cut, folder_make, folder_remove)
{
    struct append_file file;
    struct err err;
    char path[128];
    snprintf(path, sizeof path, "%s/t", folder);
    assert_int_equal(append_file_open(&file, path, 0, &err), STATUS_OK);
    buffer_string(&file.pending, "hello world");
    assert_int_equal(append_file_sync(&file, &err), STATUS_OK);
    assert_int_equal(file.written, 11);
    append_file_close(&file);
    assert_int_equal(append_file_open(&file, path, 5, &err), STATUS_OK);
    buffer_string(&file.pending, "!");
    assert_int_equal(append_file_flush(&file, &err), STATUS_OK);
    append_file_close(&file);
    assert_int_equal(size_of("t"), 6);
    assert_int_equal(append_file_open(&file, path, 7, &err), STATUS_BAD_INPUT);
    append_file_close(&file);
    assert_int_equal(append_file_open(&file, "/nonexistent/t", 0, &err), STATUS_NOT_FOUND);
    append_file_close(&file);
}

static struct hash hash_of(uint64_t i)
{
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;
    return (struct hash){x ^ x >> 29, x * 0xbf58476d1ce4e5b9u};
}

TEST(equal_texts_are_found)
{
    struct dedup *dedup;
    struct err err;
    assert_int_equal(dedup_open(100000, &dedup, &err), STATUS_OK);
    for (uint64_t i = 0; i < 120000; i++) {
        assert_true(dedup_find(dedup, hash_of(i)).row == DEDUP_NONE);
        dedup_put(dedup, hash_of(i), (struct dedup_entry){.row = i * 5});
    }
    for (uint64_t i = 0; i < 120000; i++) {
        assert_true(dedup_find(dedup, hash_of(i)).row == (i < 100000 ? i * 5 : DEDUP_NONE));
    }
    dedup_put(dedup, hash_of(7), (struct dedup_entry){0, ROW_NON_FINITE}); /* a known entry can be changed */
    assert_int_equal(dedup_find(dedup, hash_of(7)).code, ROW_NON_FINITE);
    assert_int_equal(dedup_find(dedup, hash_of(7)).row, 0);
    dedup_close(dedup);
}
