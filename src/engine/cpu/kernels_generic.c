/* The CPU kernels for any machine. */
#include "engine/cpu/vec_generic.h"

#define KERNELS_NAME kernels_generic
#define KERNELS_LABEL "generic"
#define KERNELS_FEW_ROWS NULL
#define KERNELS_TILES NULL
#define KERNELS_DIGITS NULL
#include "engine/cpu/kernels.inc"
