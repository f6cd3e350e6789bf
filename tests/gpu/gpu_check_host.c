/* gpu_check over the host table and the SIMT shim: linked beside gpu_check.c, it opens that machine before main, so
 * that what the GPU check does with a GPU (f16, graphs, rows beyond f16, products) is done in the default test run. */
#include "cuda_host.h"

__attribute__((constructor)) static void open_host(void)
{
    cuda_host_open(NULL);
}

__attribute__((destructor)) static void close_host(void)
{
    cuda_host_close();
}
