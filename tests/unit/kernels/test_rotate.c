/* kernel_rotate beside complex numbers in f64. */
#include "harness.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>

#include "kernel_device.h"
#include "kernel_matrix.h"
#include "kernel_numbers.h"

enum { POSITIONS = 80 };

/* Heads in some columns of a wider matrix: the columns before and after them belong to others. */
struct rotate_scene {
    struct kernel_rows rows;
    struct kernel_matrix x, before, table, gains;
    uint32_t first;
    struct kernel_rotate_args args;
};

static struct rotate_scene rotate_new(enum kernel_type type, uint32_t heads, uint32_t head_dim)
{
    static const uint32_t lengths[] = {1, POSITIONS, 7, 33};
    const uint32_t half = head_dim / 2, stride = (heads + 1) * head_dim + 8;
    struct rotate_scene s = {.rows = rows_new(4, lengths, 3, 10), .first = 8};
    s.x = matrix_random(type, 1, s.rows.tokens, stride);
    s.before = matrix_random(type, 1, s.rows.tokens, stride);
    s.table = matrix_blank(KERNEL_F32, POSITIONS, head_dim);
    for (uint32_t t = 0; t < POSITIONS; t++) {
        for (uint32_t i = 0; i < half; i++) {
            const double angle = t * pow(10000, -(double)i / half);
            *matrix_at(&s.table, t, i) = (float)cos(angle);
            *matrix_at(&s.table, t, half + i) = (float)sin(angle);
        }
    }
    matrix_put(&s.table);
    s.gains = matrix_random(KERNEL_F32, 2, 2, head_dim);
    s.args = (struct kernel_rotate_args){
        .type = type,
        .bound = s.rows.tokens + 5,
        .heads = heads,
        .head_dim = head_dim,
        .stride = stride,
        .positions = POSITIONS,
        .ragged = s.rows.device,
        .table = s.table.device,
        .x = (char *)s.x.device + s.first * number_bytes(type),
    };
    return s;
}

static void rotate_free(struct rotate_scene *s)
{
    rows_free(&s->rows);
    matrix_free(&s->x);
    matrix_free(&s->before);
    matrix_free(&s->table);
    matrix_free(&s->gains);
}

/* A number of a head before it turns. */
static double headed(const struct rotate_scene *s, uint32_t token, uint32_t head, uint32_t at)
{
    const uint32_t dim = s->args.head_dim, first = s->first + head * dim;
    double squares = 0, x = *matrix_at(&s->before, token, first + at);
    if (s->args.query_gain == NULL) { return x; }
    for (uint32_t i = 0; i < dim; i++) { squares += pow(*matrix_at(&s->before, token, first + i), 2) / dim; }
    return x / sqrt(squares + s->args.epsilon) * *matrix_at(&s->gains, head < s->args.queries ? 0 : 1, at);
}

static float wanted(const struct rotate_scene *s, uint32_t position, uint32_t token, uint32_t column)
{
    const uint32_t dim = s->args.head_dim, half = dim / 2;
    if (column < s->first || column >= s->first + s->args.heads * dim || token >= s->args.bound) {
        return *matrix_at(&s->before, token, column);
    }
    const uint32_t head = (column - s->first) / dim, at = (column - s->first) % dim, i = at % half;
    const double complex x = headed(s, token, head, i) + headed(s, token, head, i + half) * I;
    const double complex turned =
        x * (*matrix_at(&s->table, position, i) + *matrix_at(&s->table, position, half + i) * I);
    return (float)(at < half ? creal(turned) : cimag(turned));
}

/* Checks the tokens of rows; gaps may hold anything. */
static void check(struct rotate_scene *s)
{
    assert_int_equal(kernel_rotate(device_queue(), &s->args), cudaSuccess);
    matrix_fetch(&s->x);
    for (uint32_t r = 0; r < s->rows.rows; r++) {
        for (uint32_t t = 0; t < s->rows.length[r]; t++) {
            const uint32_t token = s->rows.start[r] + t;
            for (uint32_t i = 0; i < s->args.stride; i++) {
                const float want = wanted(s, t, token, i), got = *matrix_at(&s->x, token, i);
                if (!(fabsf(got - want) <= number_step(s->args.type, want) + 1e-6f)) {
                    fail_msg("type %d, head dim %u, position %u, column %u: %.9g instead of %.9g", (int)s->args.type,
                             s->args.head_dim, t, i, (double)got, (double)want);
                }
            }
        }
    }
}

TEST(every_type_and_head_dim)
{
    static const uint32_t dims[] = {16, 32, 48, 64, 128, 256};
    for (enum kernel_type type = KERNEL_F32; type <= KERNEL_BF16; type++) {
        for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
            struct rotate_scene s = rotate_new(type, 3, dims[i]);
            check(&s);
            rotate_free(&s);
        }
    }
}

/* Queries and keys have gains of their own. */
TEST(heads_are_normalised_before_they_turn)
{
    static const uint32_t dims[] = {16, 32, 64, 128, 256};
    for (enum kernel_type type = KERNEL_F32; type <= KERNEL_BF16; type++) {
        for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
            struct rotate_scene s = rotate_new(type, 5, dims[i]);
            s.args.queries = 3;
            s.args.query_gain = s.gains.device;
            s.args.key_gain = (const float *)s.gains.device + dims[i];
            s.args.epsilon = 0.01f;
            s.args.bound -= 9; /* some lanes of a warp have no token */
            check(&s);
            rotate_free(&s);
        }
    }
}

/* A launch for fewer tokens than the matrix has turns only those. */
TEST(the_bound_holds)
{
    struct rotate_scene s = rotate_new(KERNEL_F16, 5, 64);
    s.args.bound = 50;
    check(&s);
    rotate_free(&s);
}

TEST(what_it_does_not_do_is_refused)
{
    struct rotate_scene s = rotate_new(KERNEL_F16, 2, 32);
    struct kernel_rotate_args bad[11];
    for (size_t i = 0; i < 11; i++) { bad[i] = s.args; }
    bad[0].bound = 0;
    bad[1].heads = 0;
    bad[2].head_dim = 24;
    bad[3].stride = 100;
    bad[4].stride = 56;
    bad[5].positions = 0;
    bad[6].type = (enum kernel_type)3;
    bad[7].x = (char *)s.x.device + 8;
    bad[8].bound = UINT32_MAX;
    bad[9].query_gain = s.gains.device;
    bad[10].query_gain = bad[10].key_gain = s.gains.device, bad[10].heads = 1, bad[10].head_dim = 48;
    for (size_t i = 0; i < 11; i++) { assert_int_equal(kernel_rotate(device_queue(), &bad[i]), cudaErrorInvalidValue); }
    rotate_free(&s);
}
