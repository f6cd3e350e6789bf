/* 128 bits that stand for a text. Two of ten million texts have the same ones with a probability below 1e-24. */
#ifndef BULK_HASH_H
#define BULK_HASH_H

#include <stdbool.h>
#include <stdint.h>

struct hash {
    uint64_t low, high;
};

static inline bool hash_equal(struct hash a, struct hash b)
{
    return a.low == b.low && a.high == b.high;
}

#endif
