/* gpu_check over the host table and the SIMT shim: linked beside gpu_check.c, it opens the host table before main, so
 * that the default test run covers the GPU check's work with a GPU (f16, graphs, rows beyond f16, products). */
#include "cuda_host.h"

__attribute__((constructor)) static void open_host(void)
{
    cuda_host_open(NULL);
}

__attribute__((destructor)) static void close_host(void)
{
    cuda_host_close();
}
