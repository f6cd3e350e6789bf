/* Products on the host's table; two algorithms, so that there is something to choose between. */
#include "cuda_host.h"
#include "products_device.h"

const struct cuda_api *products_open(void)
{
    static const struct cuda_host_options options = {
        .memory_bytes = (size_t)16 << 20, .order = CUDA_HOST_SHUFFLED, .algorithms = {{2000, 0, 0}, {1000, 256, 0}}};
    return cuda_host_open(&options);
}

void products_close(void)
{
    cuda_host_close();
}

bool products_large(void)
{
    return false;
}
