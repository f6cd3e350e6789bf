/* What a test steers the host table by, and looks at it with. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_host_private.h"

void cuda_host_plant(struct cuda_host_fault fault)
{
    pthread_mutex_lock(&host_mutex);
    if (host.planted_count == HOST_FAULTS)
        abort();
    host.planted[host.planted_count++] = (struct host_planted){fault, 0};
    pthread_mutex_unlock(&host_mutex);
}

bool cuda_host_struck(void)
{
    bool struck = true;
    pthread_mutex_lock(&host_mutex);
    for (unsigned i = 0; i < host.planted_count; i++) {
        struck = struck && host.planted[i].seen >= host.planted[i].fault.at;
    }
    pthread_mutex_unlock(&host_mutex);
    return struck;
}

void cuda_host_clear(void)
{
    pthread_mutex_lock(&host_mutex);
    host.planted_count = 0;
    host.spoil.planted = false;
    pthread_mutex_unlock(&host_mutex);
}

void cuda_host_lose(int device)
{
    pthread_mutex_lock(&host_mutex);
    host.devices[device].lost = cudaErrorIllegalAddress;
    pthread_cond_broadcast(&host_changed);
    pthread_mutex_unlock(&host_mutex);
}

void cuda_host_hang(int device, bool hangs)
{
    pthread_mutex_lock(&host_mutex);
    host.devices[device].hangs = hangs;
    pthread_cond_broadcast(&host_changed);
    pthread_mutex_unlock(&host_mutex);
}

void cuda_host_await_hang(void)
{
    pthread_mutex_lock(&host_mutex);
    while (host.blocked == 0)
        pthread_cond_wait(&host_changed, &host_mutex);
    pthread_mutex_unlock(&host_mutex);
}

void cuda_host_spoil(cudaDataType_t type, uint32_t at, uint32_t times)
{
    pthread_mutex_lock(&host_mutex);
    host.spoil.planted = true;
    host.spoil.type = type;
    host.spoil.at = at;
    host.spoil.times = times;
    host.spoil.seen = 0;
    pthread_mutex_unlock(&host_mutex);
}

void cuda_host_offer(const struct cuda_host_algorithm *algorithms)
{
    pthread_mutex_lock(&host_mutex);
    host.offered_count = 0;
    for (uint32_t i = 0; algorithms != NULL && i < CUDA_HOST_ALGORITHMS && algorithms[i].time_ns != 0; i++)
        host.offered[host.offered_count++] = algorithms[i];
    pthread_mutex_unlock(&host_mutex);
}

size_t cuda_host_held_bytes(int device)
{
    pthread_mutex_lock(&host_mutex);
    size_t bytes = host.devices[device].held_bytes;
    pthread_mutex_unlock(&host_mutex);
    return bytes;
}

size_t cuda_host_most_bytes(int device)
{
    pthread_mutex_lock(&host_mutex);
    size_t bytes = host.devices[device].most_bytes;
    pthread_mutex_unlock(&host_mutex);
    return bytes;
}

/* Copies between ordinary memory and a device's, behind its back. */
static void look(void *to, const void *from, const void *device_memory, size_t bytes)
{
    pthread_mutex_lock(&host_mutex);
    (void)host_drain_device(-1);
    const struct host_block *block = host_block_of(device_memory, bytes);
    if (block == NULL || block->device == HOST_PINNED) {
        fprintf(stderr, "cuda_host: peek or poke at what is not device memory\n");
        abort();
    }
    host_memory_open(block->device);
    memcpy(to, from, bytes);
    host_memory_shut();
    pthread_mutex_unlock(&host_mutex);
}

void cuda_host_peek(void *to, const void *device_memory, size_t bytes)
{
    look(to, device_memory, device_memory, bytes);
}

void cuda_host_poke(void *device_memory, const void *from, size_t bytes)
{
    look(device_memory, from, device_memory, bytes);
}
