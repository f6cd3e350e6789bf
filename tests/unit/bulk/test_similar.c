/* Vectors read back from files of all kinds, and the nearest of them. */
#include "folder.h"
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "bulk/output/store.h"
#include "bulk/similar.h"

static float noise(uint32_t *seed)
{
    *seed = *seed * 1664525U + 1013904223U;
    return (float)(*seed >> 8) / (float)(1 << 23) - 1.0F;
}

/* Gives the same rows in the same order as plain loops in f64, for dimensions that fill the last lanes or not. */
TEST(all_dimensions)
{
    enum { ROWS = 300, MOST = 7 };
    static const uint32_t dims[] = {1, 3, 16, 17, 31, 64, 100, 384};
    uint32_t seed = 1;
    for (size_t d = 0; d < sizeof dims / sizeof dims[0]; d++) {
        uint32_t dim = dims[d];
        float *rows = malloc((size_t)ROWS * dim * sizeof *rows), *query = malloc(dim * sizeof *query);
        for (size_t i = 0; i < (size_t)ROWS * dim; i++) { rows[i] = noise(&seed); }
        for (uint32_t i = 0; i < dim; i++) { query[i] = noise(&seed); }
        struct nearest nearest;
        struct err err;
        assert_int_equal(nearest_open(&nearest, query, dim, MOST, &err), STATUS_OK);
        nearest_add(&nearest, rows, 100);
        nearest_add(&nearest, rows + (size_t)100 * dim, ROWS - 100);
        assert_int_equal(nearest.seen, ROWS);
        assert_int_equal(nearest.count, MOST);
        for (uint32_t k = 0; k < MOST; k++) {
            uint32_t better = 0;
            double own = 0;
            for (uint32_t r = 0; r <= ROWS; r++) {
                const float *row = rows + (r == 0 ? nearest.rows[k].row : r - 1) * dim;
                double dot = 0, square = 0, length = 0;
                for (uint32_t i = 0; i < dim; i++) {
                    dot += (double)row[i] * (double)query[i];
                    square += (double)row[i] * (double)row[i];
                    length += (double)query[i] * (double)query[i];
                }
                double cosine = dot / sqrt(square) / sqrt(length);
                if (r == 0) {
                    own = cosine;
                } else {
                    better += cosine > own + 1e-5;
                }
            }
            assert_true(better <= k);
            assert_true(fabs((double)nearest.rows[k].cosine - own) < 1e-5);
            assert_true(k == 0 || nearest.rows[k].cosine <= nearest.rows[k - 1].cosine);
        }
        free(nearest.rows);
        free(rows);
        free(query);
    }
}

TEST(rows_without_direction_are_skipped)
{
    const float query[2] = {1, 0};
    const float rows[][2] = {{0, 1}, {NAN, NAN}, {2, 0}, {0, 0}, {INFINITY, 1}, {1e30F, 0}, {1e-30F, 0}, {-1, 0}};
    static const uint64_t wanted[] = {2, 5, 6, 0, 7};
    struct nearest nearest;
    struct err err;
    assert_int_equal(nearest_open(&nearest, query, 2, 10, &err), STATUS_OK);
    nearest_add(&nearest, rows[0], 8);
    assert_int_equal(nearest.skipped, 3);
    assert_int_equal(nearest.count, 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(nearest.rows[i].row, wanted[i]); /* of equal rows the first comes first */
    }
    assert_true(nearest.rows[2].cosine == 1.0F && nearest.rows[4].cosine == -1.0F);
    free(nearest.rows);
    const float none[2] = {0, 0};
    assert_int_equal(nearest_open(&nearest, none, 2, 10, &err), STATUS_BAD_INPUT);
    free(nearest.rows);
}

/* Each row is nearer to the query than the one before, except for one without a direction. */
static void expect_rows(const char *path, uint64_t count, uint32_t dim)
{
    struct output output;
    struct nearest nearest;
    struct err err;
    float *query = calloc(dim, sizeof *query);
    query[0] = 1;
    assert_int_equal(output_name(path, &output, &err), STATUS_OK);
    assert_int_equal(nearest_open(&nearest, query, dim, (uint32_t)count, &err), STATUS_OK);
    assert_int_equal(nearest_read(&nearest, &output, &err), STATUS_OK);
    assert_true(nearest.seen == count && nearest.skipped == 1 && nearest.count == count - 1);
    for (uint32_t i = 0; i < nearest.count; i++) {
        uint64_t row = nearest.rows[i].row;
        double first = (double)row, last = (double)(count - row);
        assert_int_equal(row, count - 1 - i - (i >= count - 4)); /* row 3 has none */
        assert_true(fabs((double)nearest.rows[i].cosine - first / sqrt(first * first + last * last)) < 1e-6);
    }
    free(nearest.rows);
    free(query);
    output_free(&output);
}

/* The files of a job's store can be read: every kind of file, both kinds of floats, ranges across pieces and files. */
TEST_WITH(what_a_store_wrote, folder_make, folder_remove)
{
    static const struct {
        enum store_kind kind;
        enum element element;
        const char *name;
    } cases[] = {{STORE_NPY, ELEMENT_F32, "a.npy"},
                 {STORE_NPY, ELEMENT_F16, "b.npy"},
                 {STORE_RAW, ELEMENT_F32, "c.f32"},
                 {STORE_SHARDS, ELEMENT_F16, "d/"}};
    enum { ROWS = 1000, DIM = 700 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", folder, cases[i].name);
        if (cases[i].kind == STORE_SHARDS) {
            char command[160];
            snprintf(command, sizeof command, "mkdir %s", path);
            assert_int_equal(system(command), 0);
        }
        struct store *store;
        struct err err;
        struct store_options options = {.kind = cases[i].kind,
                                        .path = path,
                                        .dim = DIM,
                                        .element = cases[i].element,
                                        .shard_rows = 300,
                                        .fresh = true};
        assert_int_equal(store_open(&options, &store, &err), STATUS_OK);
        for (uint64_t row = 0; row < ROWS; row++) {
            float vector[DIM] = {row == 3 ? NAN : (float)row, [DIM - 1] = (float)(ROWS - row)};
            assert_int_equal(store_put(store, row, 1, vector, &err), STATUS_OK);
        }
        assert_int_equal(store_finish(store, ROWS, &err), STATUS_OK);
        store_close(store);
        expect_rows(path, ROWS, DIM);
    }
}

/* f16 of every kind: signs, the smallest ones, infinite. Each is in a row beside 1, and the query multiplies it alone.
 */
TEST_WITH(halves_are_exact, folder_make, folder_remove)
{
    static const uint16_t halves[] = {0x0000, 0x8000, 0x3c00, 0xc000, 0x0001, 0x83ff,
                                      0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x0400};
    static const double wanted[] = {0, -0.0, 1, -2, 0x1p-24, -0x1.ff8p-15, 65504, 0, 0, 0, 0x1p-14};
    enum { COUNT = sizeof halves / sizeof halves[0], NOT_FINITE = 3 };
    const float query[2] = {1, 0};
    char path[128], header[NPY_HEADER_BYTES];
    snprintf(path, sizeof path, "%s/h.npy", folder);
    npy_header(header, "<f2", COUNT, 2);
    FILE *file = fopen(path, "wb");
    assert_int_equal(fwrite(header, 1, sizeof header, file), sizeof header);
    for (int i = 0; i < COUNT; i++) {
        const uint16_t row[2] = {halves[i], 0x3c00};
        assert_int_equal(fwrite(row, sizeof row, 1, file), 1);
    }
    fclose(file);
    struct output output;
    struct nearest nearest;
    struct err err;
    assert_int_equal(output_name(path, &output, &err), STATUS_OK);
    assert_int_equal(nearest_open(&nearest, query, 2, COUNT, &err), STATUS_OK);
    assert_int_equal(nearest_read(&nearest, &output, &err), STATUS_OK);
    assert_true(nearest.skipped == NOT_FINITE && nearest.count == COUNT - NOT_FINITE);
    for (uint32_t i = 0; i < nearest.count; i++) {
        double value = wanted[nearest.rows[i].row], cosine = (double)nearest.rows[i].cosine;
        double expected = value / sqrt(value * value + 1);
        assert_true(fabs(cosine - expected) <= 1e-7 * fabs(expected));
    }
    free(nearest.rows);
    output_free(&output);
}

/* Heads that are valid .npy but cannot be searched, and invalid ones. */
TEST_WITH(refused, folder_make, folder_remove)
{
    static const struct {
        const char *head, *says;
    } cases[] = {
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (2, 4), }", "<f8"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (2, 4), }", ">f4"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 4), }", "Fortran"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (8,), }", "1 dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 5), }",
         "with 5 columns; the model's vectors are <f4 or <f2 in rows, with 4"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", "32 bytes are not those of 3 rows"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4), }", "unfinished"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", "plain numbers"},
        {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2, 4), }", "plain numbers"},
    };
    char path[128];
    snprintf(path, sizeof path, "%s/r.npy", folder);
    struct output output;
    struct nearest nearest;
    struct err err;
    const float query[4] = {1};
    assert_int_equal(output_name(path, &output, &err), STATUS_OK);
    assert_int_equal(nearest_open(&nearest, query, 4, 1, &err), STATUS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char bytes[NPY_HEADER_BYTES + 32] = "";
        npy_header(bytes, "<f4", 0, 0);
        memset(bytes + 10, ' ', NPY_HEADER_BYTES - 11);
        memcpy(bytes + 10, cases[i].head, strlen(cases[i].head));
        FILE *file = fopen(path, "wb");
        assert_int_equal(fwrite(bytes, 1, sizeof bytes, file), sizeof bytes);
        fclose(file);
        assert_int_equal(nearest_read(&nearest, &output, &err), STATUS_BAD_INPUT);
        assert_non_null(strstr(err.message, cases[i].says));
        assert_non_null(strstr(err.message, path));
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(nearest_read(&nearest, &output, &err), STATUS_NOT_FOUND);
    assert_int_equal(nearest.seen, 0);
    free(nearest.rows);
    output_free(&output);
}
