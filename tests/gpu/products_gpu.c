/* Products on the GPU, by the table that the daemon uses. */
#include <stdio.h>
#include <stdlib.h>

#include "products_device.h"

const struct cuda_api *products_open(void)
{
    const struct cuda_api *api;
    struct err err;
    if (cuda_api_real(&api, &err) == STATUS_OK && cuda_check(api, api->cudaSetDevice(0), "GPU 0", &err) == STATUS_OK) {
        return api;
    }
    fprintf(stderr, "%s\n", err.message);
    exit(1);
}

void products_close(void)
{
}

bool products_large(void)
{
    return true;
}
