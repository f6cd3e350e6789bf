/* The words of kernels/ptx.h beside the PTX ISA: fragments are laid out here element by element as its formulas say
 * (section "Matrix Fragments for mma.m16n8k16 with floating point type"), and the product is a plain one. */
#include "harness.h"

#include <math.h>
#include <stdlib.h>

#include "kernel_device.h"
#include "kernel_numbers.h"
#include "kernels/kernels.h"
#include "ptx_probe.h"

enum { LANES = 32, M = 16, N = 8, K = 16 };

static uint16_t rounded(enum kernel_type type, float x)
{
    return type == KERNEL_F16 ? f16_from_f32(x) : bf16_from_f32(x);
}

/* Element i of a lane's fragment of A [M, K]: eight elements in four registers. */
static void place_of_a(uint32_t lane, uint32_t i, uint32_t *row, uint32_t *column)
{
    const uint32_t group = lane >> 2, in_group = lane % 4;
    *row = i < 2 || (4 <= i && i < 6) ? group : group + 8;
    *column = i < 4 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8;
}

/* Element i of a lane's fragment of B [K, N]: four elements in two registers. */
static void place_of_b(uint32_t lane, uint32_t i, uint32_t *row, uint32_t *column)
{
    *row = i < 2 ? lane % 4 * 2 + (i & 1) : lane % 4 * 2 + (i & 1) + 8;
    *column = lane >> 2;
}

/* Element i of a lane's fragment of C and D [M, N]: four floats. */
static void place_of_d(uint32_t lane, uint32_t i, uint32_t *row, uint32_t *column)
{
    *row = i < 2 ? lane >> 2 : (lane >> 2) + 8;
    *column = lane % 4 * 2 + (i & 1);
}

static void *given(const void *from, size_t bytes)
{
    return device_new(bytes, from);
}

/* Runs one product. Shapes: a [M, K], b [K, N], read; d [M, N], read and written. */
static void multiply(enum kernel_type type, const float *a, const float *b, float *d)
{
    uint16_t left[LANES][8], right[LANES][4];
    float sums[LANES][4];
    uint32_t row, column;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        for (uint32_t i = 0; i < 8; i++) {
            place_of_a(lane, i, &row, &column);
            left[lane][i] = rounded(type, a[row * K + column]);
        }
        for (uint32_t i = 0; i < 4; i++) {
            place_of_b(lane, i, &row, &column);
            right[lane][i] = rounded(type, b[row * N + column]);
            place_of_d(lane, i, &row, &column);
            sums[lane][i] = d[row * N + column];
        }
    }
    void *const da = given(left, sizeof left), *const db = given(right, sizeof right),
                *const dd = given(sums, sizeof sums);
    const struct probe_mma_args args = {.type = type, .a = da, .b = db, .d = dd};
    assert_int_equal(probe_mma(device_queue(), &args), cudaSuccess);
    device_read(sums, dd, sizeof sums);
    device_free(da);
    device_free(db);
    device_free(dd);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        for (uint32_t i = 0; i < 4; i++) {
            place_of_d(lane, i, &row, &column);
            d[row * N + column] = sums[lane][i];
        }
    }
}

static void check_product(enum kernel_type type)
{
    float a[M * K], b[K * N], c[M * N], d[M * N];
    numbers_random(type, 1, M * K, a);
    numbers_random(type, 2, K * N, b);
    numbers_random(KERNEL_F32, 3, M * N, c);
    memcpy(d, c, sizeof d);
    multiply(type, a, b, d);
    for (uint32_t i = 0; i < M * N; i++) {
        double want = c[i];
        for (uint32_t k = 0; k < K; k++) { want += (double)a[i / N * K + k] * b[k * N + i % N]; }
        /* Hardware truncates sums that f32 would round: a few units of 2^-23 of the largest term. */
        assert_true(fabs(d[i] - want) <= 0x1p-19);
    }
}

TEST(product_of_f16)
{
    check_product(KERNEL_F16);
}

TEST(product_of_bf16)
{
    check_product(KERNEL_BF16);
}

/* A NaN reaches the results of its row or column, and no others; products beyond f16 are fine in f32 sums. */
TEST(product_of_extremes)
{
    float a[M * K] = {0}, b[K * N] = {0}, d[M * N] = {0};
    a[5 * K + 9] = NAN;
    a[7 * K + 2] = 60000.0f;
    b[2 * N + 3] = 60000.0f;
    multiply(KERNEL_F16, a, b, d);
    for (uint32_t i = 0; i < M * N; i++) {
        if (i / N == 5) {
            assert_true(isnan(d[i]));
        } else if (i == 7 * N + 3) {
            assert_true(fabsf(d[i] - 3.6e9f) < 4e6f);
        } else {
            assert_true(d[i] == 0.0f);
        }
    }
}

/* Matrix i's rows are those that lanes 8i..8i+7 name; a lane gets, of each, the elements that a fragment of the
 * transposed matrix has at (row = lane / 4, columns 2 * (lane % 4) and the next). */
TEST(matrices_are_read_transposed)
{
    uint16_t from[64][8];
    uint32_t row[LANES], to[LANES][4];
    for (uint32_t i = 0; i < 64 * 8; i++) { from[i / 8][i % 8] = (uint16_t)(1000 + i); }
    for (uint32_t lane = 0; lane < LANES; lane++) { row[lane] = lane * 37 % 64; /* any order, each another row */ }
    void *const df = given(from, sizeof from), *const dr = given(row, sizeof row),
                *const dt = device_new(sizeof to, NULL);
    const struct probe_ldmatrix_args args = {.from = df, .row = dr, .to = dt};
    assert_int_equal(probe_ldmatrix(device_queue(), &args), cudaSuccess);
    device_read(to, dt, sizeof to);
    device_free(df);
    device_free(dr);
    device_free(dt);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t low = from[row[8 * i + lane % 4 * 2]][lane / 4];
            const uint32_t high = from[row[8 * i + lane % 4 * 2 + 1]][lane / 4];
            assert_int_equal(to[lane][i], low | high << 16);
        }
    }
}

TEST(copies_arrive_or_are_zeros)
{
    enum { COUNT = 128 };
    uint32_t from[COUNT][4], valid[COUNT], to[COUNT][4];
    for (uint32_t i = 0; i < COUNT; i++) {
        valid[i] = i % 3 != 0 && i < 100;
        for (uint32_t k = 0; k < 4; k++) { from[i][k] = 7 + 4 * i + k; }
    }
    /* The source ends at the last lane that is valid. */
    void *const df = given(from, 100 * sizeof from[0]), *const dv = given(valid, sizeof valid);
    void *const dt = device_new(sizeof to, NULL);
    const struct probe_copy_args args = {.from = df, .valid = dv, .to = dt};
    assert_int_equal(probe_copy(device_queue(), &args), cudaSuccess);
    device_read(to, dt, sizeof to);
    device_free(df);
    device_free(dv);
    device_free(dt);
    for (uint32_t i = 0; i < COUNT; i++) {
        for (uint32_t k = 0; k < 4; k++) { assert_int_equal(to[i][k], valid[127 - i] ? from[127 - i][k] : 0); }
    }
}

TEST(powers_of_two)
{
    float x[LANES] = {0.0f, 1.0f, -1.0f, -INFINITY, INFINITY, NAN, -200.0f, 127.0f, -126.0f, 0x1p-30f}, y[LANES];
    for (uint32_t i = 10; i < LANES; i++) { x[i] = -0.37f * (float)i; }
    void *const dx = given(x, sizeof x), *const dy = device_new(sizeof y, NULL);
    const struct probe_exp2_args args = {.x = dx, .y = dy};
    assert_int_equal(probe_exp2(device_queue(), &args), cudaSuccess);
    device_read(y, dy, sizeof y);
    device_free(dx);
    device_free(dy);
    for (uint32_t i = 0; i < LANES; i++) {
        const double want = exp2(x[i]);
        if (isnan(x[i])) {
            assert_true(isnan(y[i]));
        } else if (want < 0x1p-126) {
            assert_true(y[i] >= 0.0f && y[i] < 0x1p-126f); /* subnormal or 0 */
        } else {
            assert_true((double)y[i] == want || fabs(y[i] - want) <= 0x1p-21 * want);
        }
    }
}

/* --- the places of a piece's chunks in shared memory (kernels/attention.h) ------------------------------------------
 */

/* The bank of 16 bytes of chunk `chunk` of a token. */
static uint32_t bank_of(int head_dim, int token, int chunk)
{
    return 1u << probe_place(head_dim, token, chunk) % 8;
}

TEST(places_are_all_different)
{
    for (int head_dim = 32; head_dim <= 64; head_dim += 32) {
        uint8_t seen[16 * 8] = {0};
        const int chunks = head_dim / 8;
        for (int i = 0; i < 16 * chunks; i++) {
            const int place = probe_place(head_dim, i / chunks, i % chunks);
            assert_in_range(place, 0, 16 * chunks - 1);
            assert_int_equal(seen[place]++, 0);
        }
    }
}

/* Eight lanes are served at a time, and must use eight different banks of 16 bytes. */
TEST(accesses_meet_all_banks)
{
    for (int head_dim = 32; head_dim <= 64; head_dim += 32) {
        const int chunks = head_dim / 8;
        for (int first = 0; first < 16 * chunks; first += 8) { /* copies: chunks in a row */
            uint32_t banks = 0;
            for (int i = first; i < first + 8; i++) { banks |= bank_of(head_dim, i / chunks, i % chunks); }
            assert_int_equal(banks, 0xff);
        }
        for (int token = 0; token < 16; token += 2) { /* keys: four chunks of two tokens */
            for (int chunk = 0; chunk < chunks; chunk += 4) {
                uint32_t banks = 0;
                for (int i = 0; i < 8; i++) { banks |= bank_of(head_dim, token + i / 4, chunk + i % 4); }
                assert_int_equal(banks, 0xff);
            }
        }
        for (int token = 0; token < 16; token += 8) { /* values: a chunk of eight tokens */
            for (int chunk = 0; chunk < chunks; chunk++) {
                uint32_t banks = 0;
                for (int i = 0; i < 8; i++) { banks |= bank_of(head_dim, token + i, chunk); }
                assert_int_equal(banks, 0xff);
            }
        }
    }
}
