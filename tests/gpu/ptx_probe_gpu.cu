/* tests/support/ptx_probe.cu as nvcc builds it: a source file can be of one language only in a folder, and there it is
 * C++ for the host's tests. */
#include "ptx_probe.cu"
