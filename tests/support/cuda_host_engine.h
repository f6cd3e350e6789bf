/* The host of cuda_host.h as the engine finds it: in programs that link this, cuda_api_real gives the host's table
 * while one is open, and says that there is no driver when none is. Kernels run under the SIMT shim. */
#ifndef TESTS_CUDA_HOST_ENGINE_H
#define TESTS_CUDA_HOST_ENGINE_H

#include "cuda_host.h"

/* Starts a host for the engine; options as for cuda_host_open. */
void cuda_host_engine_open(const struct cuda_host_options *options);

/* Ends it, with all that cuda_host_close looks at. */
void cuda_host_engine_close(void);

#endif
