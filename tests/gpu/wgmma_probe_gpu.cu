/* tests/support/wgmma_probe.cu, as nvcc builds it. */
#include "wgmma_probe.cu"
