/* The ways to make one vector of a text's token vectors. */
#ifndef MODEL_POOLING_H
#define MODEL_POOLING_H

enum pooling {
    POOLING_UNSET,
#define POOLING(name, mode, flag) POOLING_##name,
#include "poolings.inc"
#undef POOLING
    POOLINGS
};

#endif
