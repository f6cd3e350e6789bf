/* Widening to f32: all 65,536 patterns of both half formats; and giving memory back. */
#include "harness.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/model.h"

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint32_t widened(enum dtype dtype, uint16_t half)
{
    struct tensor tensor = {.dtype = dtype, .rank = 1, .shape = {1, 1}, .data = &half, .elements = 1};
    float value;
    tensor_read_f32(&tensor, 0, 1, &value);
    return bits_of(value);
}

/* Compares with the definition of the format, in double arithmetic. */
TEST(widens_every_f16)
{
    for (uint32_t half = 0; half <= 0xFFFF; half++) {
        int exponent = (int)(half >> 10 & 0x1F);
        double mantissa = half & 0x3FF, sign = half & 0x8000 ? -1 : 1;
        uint32_t got = widened(DTYPE_F16, (uint16_t)half);
        if (exponent == 31 && mantissa != 0) {
            assert_int_equal(got, (half & 0x8000) << 16 | 0x7F800000 | (half & 0x3FF) << 13);
            continue;
        }
        double value = exponent == 31  ? (double)INFINITY
                       : exponent == 0 ? ldexp(mantissa, -24)
                                       : ldexp(1024 + mantissa, exponent - 25);
        assert_int_equal(got, bits_of((float)(sign * value)));
    }
}

TEST(widens_every_bf16)
{
    for (uint32_t half = 0; half <= 0xFFFF; half++) {
        assert_int_equal(widened(DTYPE_BF16, (uint16_t)half), half << 16);
    }
}

TEST(reads_a_range_at_any_alignment)
{
    unsigned char bytes[1 + 4 * 5];
    const float values[5] = {1.5f, -0.0f, 3e-40f, INFINITY, 7.25f};
    memcpy(bytes + 1, values, sizeof values);
    struct tensor tensor = {.dtype = DTYPE_F32, .rank = 1, .shape = {5, 1}, .data = bytes + 1, .elements = 5};
    float got[3];
    tensor_read_f32(&tensor, 1, 3, got);
    assert_memory_equal(got, values + 1, sizeof got);

    const uint16_t halves[3] = {0x3C00, 0xC000, 0x0001}; /* 1, -2, 2^-24 */
    memcpy(bytes + 1, halves, sizeof halves);
    tensor.dtype = DTYPE_F16;
    tensor_read_f32(&tensor, 1, 2, got);
    assert_int_equal(bits_of(got[0]), bits_of(-2.0f));
    assert_int_equal(bits_of(got[1]), bits_of(0x1p-24f));
}

TEST(releases_no_byte_of_a_neighbour)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = 6 * page;
    unsigned char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    memset(memory, 0xAB, size);
    size_t first = page + 12, bytes = 3 * page; /* its whole pages: the third and the fourth of six */
    struct tensor tensor = {.dtype = DTYPE_F32, .data = memory + first, .elements = bytes / sizeof(float)};
    tensor_release(&tensor);
    for (size_t i = 0; i < size; i++) { assert_int_equal(memory[i], i >= 2 * page && i < 4 * page ? 0 : 0xAB); }
    tensor = (struct tensor){.dtype = DTYPE_F16, .data = memory + 8, .elements = 16}; /* no whole page: nothing */
    tensor_release(&tensor);
    assert_int_equal(memory[8], 0xAB);
    munmap(memory, size);
}
