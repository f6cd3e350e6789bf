#include "cuda_host_engine.h"

static const struct cuda_api *open_api;

void cuda_host_engine_open(const struct cuda_host_options *options)
{
    open_api = cuda_host_open(options);
}

void cuda_host_engine_close(void)
{
    open_api = NULL;
    cuda_host_close();
}

enum status cuda_api_real(const struct cuda_api **out, struct err *err)
{
    if (open_api == NULL)
        return err_set(err, STATUS_UNSUPPORTED, "this machine has no NVIDIA driver");
    *out = open_api;
    return STATUS_OK;
}
