/* Two GPUs in plain memory (cuda_host.h) under the shipped commands: linked into them, this opens the GPUs before main,
 * so that `--backend cuda` finds them, and the whole way of a request goes through the CUDA engine without a GPU.
 *
 * A test decides when something goes wrong: signal SIGRTMIN + n loses GPU n, SIGRTMIN + 2 + n makes it hang. The daemon
 * gets signals on its I/O thread, which makes no call of CUDA once it is ready, so the handler may wait for the host.
 */
#include <signal.h>

#include "cuda_host.h"

enum { GPUS = 2 };

static void on_signal(int number)
{
    int at = number - SIGRTMIN;
    if (at < GPUS) {
        cuda_host_lose(at);
    } else {
        cuda_host_hang(at - GPUS, true);
    }
}

__attribute__((constructor)) static void open_gpus(void)
{
    static const struct cuda_host_options options = {.devices = GPUS, .order = CUDA_HOST_OTHERS};
    cuda_host_open(&options);
    for (int i = 0; i < 2 * GPUS; i++) { signal(SIGRTMIN + i, on_signal); }
}
