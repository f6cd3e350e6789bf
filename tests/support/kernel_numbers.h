/* Numbers as the kernels take them, for their tests: f32 on the test's side, any type in memory. The conversions are
 * written out from the formats, not CUDA's own, and round to nearest even. */
#ifndef TESTS_KERNEL_NUMBERS_H
#define TESTS_KERNEL_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

uint16_t f16_from_f32(float x);
float f32_from_f16(uint16_t bits);
uint16_t bf16_from_f32(float x);
float f32_from_bf16(uint16_t bits);

size_t number_bytes(enum kernel_type type);
void numbers_write(enum kernel_type type, const float *from, size_t count, void *to);
void numbers_read(enum kernel_type type, const void *from, size_t count, float *to);

/* The distance to the next number of the type above x: twice the largest change by rounding. */
float number_step(enum kernel_type type, float x);

/* `count` numbers of [-1, 1), the same for a seed, as that type holds them: rounded. */
void numbers_random(enum kernel_type type, uint64_t seed, size_t count, float *to);

#endif
