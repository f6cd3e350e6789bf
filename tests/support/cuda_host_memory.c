/* Device and pinned memory of the host table.
 *
 * A piece of device memory is a mapping of its own, which can be touched only while work of its device runs. It ends at
 * a page that can never be touched; bytes that CUDA's alignment leaves before that page are watched (poisoned under
 * AddressSanitizer, else filled and compared). Freed pages stay mapped, untouchable, until the host closes. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda_host_private.h"

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#else
#define WITH_ASAN 0
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

enum { DEVICE_ALIGNMENT = 256, PAGE = 4096, WATCHED = 64, WATCH_FILL = 0xa5, FRESH_FILL = 0xff };

static struct sigaction segv_before;

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

/* The number of bytes after a block that nothing may touch. */
static size_t watched_bytes(const struct host_block *block)
{
    if (block->device == HOST_PINNED) { return WITH_ASAN ? 0 : WATCHED; }
    return round_up(block->bytes, DEVICE_ALIGNMENT) - block->bytes;
}

/* Prints whose memory was touched; then the fault happens again, and goes to the previous handler. */
static void on_segv(int signal, siginfo_t *info, void *context)
{
    (void)context;
    const char *address = info->si_addr;
    for (size_t i = 0; i < host.block_count; i++) {
        const struct host_block *b = &host.blocks[i];
        if (b->device == HOST_PINNED || address < b->map || address >= b->map + b->map_bytes) { continue; }
        char text[200];
        int length = snprintf(text, sizeof text,
                              "cuda_host: byte %td of %s memory of device %d (%zu bytes, the process's allocation %zu) "
                              "was touched from outside\n",
                              address - b->data, b->freed ? "freed" : "allocated", b->device, b->bytes, i + 1);
        if (write(STDERR_FILENO, text, (size_t)length) < 0) { break; }
    }
    sigaction(signal, &segv_before, NULL);
}

void host_memory_start(void)
{
    struct sigaction action = {.sa_sigaction = on_segv, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, &segv_before);
}

static void protect(const struct host_block *block, int protection)
{
    if (mprotect(block->map + PAGE, block->map_bytes - 2 * PAGE, protection) != 0) {
        perror("cuda_host: mprotect");
        abort();
    }
}

static void protect_device(int device, int protection)
{
    for (size_t i = 0; i < host.block_count; i++) {
        if (host.blocks[i].device == device && !host.blocks[i].freed) { protect(&host.blocks[i], protection); }
    }
    host.devices[device].open = protection != PROT_NONE;
}

void host_memory_open(int device)
{
    if (host.devices[device].open) { return; }
    host_memory_shut();
    protect_device(device, PROT_READ | PROT_WRITE);
}

void host_memory_shut(void)
{
    for (int device = 0; device < CUDA_HOST_DEVICES; device++) {
        if (host.devices[device].open) { protect_device(device, PROT_NONE); }
    }
}

struct host_block *host_block_of(const void *address, size_t bytes)
{
    const char *from = address;
    for (size_t i = 0; i < host.block_count; i++) {
        struct host_block *b = &host.blocks[i];
        if (!b->freed && from >= b->data && from <= b->data + b->bytes &&
            bytes <= (size_t)(b->data + b->bytes - from)) {
            return b;
        }
    }
    return NULL;
}

/* The block that contains the address or is next to it, freed or not; for messages. */
static const struct host_block *block_near(const char *address)
{
    for (size_t i = 0; i < host.block_count; i++) {
        const struct host_block *b = &host.blocks[i];
        bool pinned = b->device == HOST_PINNED;
        const char *end = pinned ? b->data + b->bytes : b->map + b->map_bytes;
        if (address >= b->data && address < end && !(pinned && b->freed)) { return b; }
    }
    return NULL;
}

bool host_is_known(const void *address)
{
    return block_near(address) != NULL;
}

bool host_is_on_device(const void *address, size_t bytes, int device, const char *call, const char *what)
{
    const struct host_block *block = host_block_of(address, bytes);
    if (block != NULL && block->device == device) { return true; }
    const struct host_block *near = block != NULL ? block : block_near(address);
    if (near == NULL) {
        (void)host_misuse("%s: %s is not device memory", call, what);
    } else if (near->device == HOST_PINNED) {
        (void)host_misuse("%s: %s is pinned host memory", call, what);
    } else if (near->freed) {
        (void)host_misuse("%s: %s was freed", call, what);
    } else if (near->device != device) {
        (void)host_misuse("%s: %s is memory of device %d, not %d", call, what, near->device, device);
    } else {
        (void)host_misuse("%s: %s: %zu bytes, but there are only %td of the %zu that were allocated", call, what, bytes,
                          near->data + near->bytes - (const char *)address, near->bytes);
    }
    return false;
}

bool host_charge(int device, size_t bytes)
{
    struct host_device *d = &host.devices[device];
    if (bytes > host.options.memory_bytes - d->held_bytes) { return false; }
    d->held_bytes += bytes;
    if (d->held_bytes > d->most_bytes) { d->most_bytes = d->held_bytes; }
    return true;
}

void host_discharge(int device, size_t bytes)
{
    host.devices[device].held_bytes -= bytes;
}

static struct host_block *new_block(void)
{
    if (host.block_count == host.block_room) {
        host.block_room = host.block_room * 2 + 64;
        host.blocks = realloc(host.blocks, host.block_room * sizeof *host.blocks);
        if (host.blocks == NULL) { abort(); }
    }
    return &host.blocks[host.block_count++];
}

cudaError_t host_cudaMalloc(void **out, size_t bytes)
{
    ENTER(cudaMalloc);
    if (host_capture_forbids("cudaMalloc")) { return host_leave(cudaErrorStreamCaptureUnsupported); }
    if (bytes == 0) { return host_leave(host_misuse("cudaMalloc of nothing")); }
    size_t room = round_up(bytes, DEVICE_ALIGNMENT);
    int device = host_current_device();
    if (!host_charge(device, room)) { return host_leave(cudaErrorMemoryAllocation); }
    size_t pages = round_up(room, PAGE);
    char *map = mmap(NULL, pages + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) { abort(); }
    struct host_block *block = new_block();
    *block = (struct host_block){device, false, map + PAGE + (pages - room), bytes, map, pages + 2 * PAGE};
    protect(block, PROT_READ | PROT_WRITE);
    memset(map + PAGE, WATCH_FILL, pages);
    memset(block->data, FRESH_FILL, bytes);
    ASAN_POISON_MEMORY_REGION(map + PAGE, pages - room);
    ASAN_POISON_MEMORY_REGION(block->data + bytes, room - bytes);
    if (!host.devices[device].open) { protect(block, PROT_NONE); }
    *out = block->data;
    return host_leave(cudaSuccess);
}

cudaError_t host_cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    ENTER(cudaHostAlloc);
    if (host_capture_forbids("cudaHostAlloc")) { return host_leave(cudaErrorStreamCaptureUnsupported); }
    if (bytes == 0) { return host_leave(host_misuse("cudaHostAlloc of nothing")); }
    struct host_block block = {.device = HOST_PINNED, .bytes = bytes};
    void *data;
    if (posix_memalign(&data, PAGE, bytes + watched_bytes(&block)) != 0) {
        return host_leave(cudaErrorMemoryAllocation);
    }
    block.data = data;
    memset(block.data, FRESH_FILL, bytes);
    memset(block.data + bytes, WATCH_FILL, watched_bytes(&block));
    *new_block() = block;
    *out = block.data;
    return host_leave(cudaSuccess);
}

/* Returns whether nothing was written outside of the block. Under AddressSanitizer the write itself would have been
 * reported. */
static bool is_whole(const struct host_block *block)
{
    if (WITH_ASAN) { return true; }
    bool whole = true;
    for (size_t i = 0; i < watched_bytes(block); i++) {
        whole = whole && (unsigned char)block->data[block->bytes + i] == WATCH_FILL;
    }
    for (const char *p = block->map + PAGE; block->device != HOST_PINNED && p < block->data; p++) {
        whole = whole && (unsigned char)*p == WATCH_FILL;
    }
    return whole;
}

static void check_whole(const struct host_block *block)
{
    if (block->device != HOST_PINNED) { host_memory_open(block->device); }
    bool whole = is_whole(block);
    host_memory_shut();
    if (!whole) {
        (void)host_misuse("something was written outside of %s memory of %zu bytes",
                          block->device == HOST_PINNED ? "pinned" : "device", block->bytes);
    }
}

/* Frees memory only after the work that may still use it, as CUDA does. */
static cudaError_t give_back(void *address, bool pinned, const char *call)
{
    if (address == NULL) { return cudaSuccess; }
    if (host_capture_forbids(call)) { return cudaErrorStreamCaptureUnsupported; }
    struct host_block *block = host_block_of(address, 0);
    if (block == NULL || block->data != address || (block->device == HOST_PINNED) != pinned) {
        return host_misuse("%s: not the beginning of memory that is allocated so", call);
    }
    cudaError_t answer = host_drain_device(pinned ? -1 : block->device);
    block = host_block_of(address, 0);
    if (block == NULL) { return host_misuse("%s: freed by two threads at once", call); }
    check_whole(block);
    block->freed = true;
    if (pinned) {
        free(block->data);
        return answer;
    }
    protect(block, PROT_NONE);
    madvise(block->map, block->map_bytes, MADV_DONTNEED);
    host_discharge(block->device, round_up(block->bytes, DEVICE_ALIGNMENT));
    return answer;
}

cudaError_t host_cudaFree(void *address)
{
    ENTER(cudaFree);
    return host_leave(give_back(address, false, "cudaFree"));
}

cudaError_t host_cudaFreeHost(void *address)
{
    ENTER(cudaFreeHost);
    return host_leave(give_back(address, true, "cudaFreeHost"));
}

cudaError_t host_cudaMemGetInfo(size_t *free_bytes, size_t *all_bytes)
{
    ENTER(cudaMemGetInfo);
    *all_bytes = host.options.memory_bytes;
    *free_bytes = host.options.memory_bytes - host.devices[host_current_device()].held_bytes;
    return host_leave(cudaSuccess);
}

void host_memory_check(void)
{
    size_t left[2] = {0, 0};
    for (size_t i = 0; i < host.block_count; i++) {
        if (host.blocks[i].freed) { continue; }
        left[host.blocks[i].device == HOST_PINNED]++;
        check_whole(&host.blocks[i]);
    }
    if (left[0] > 0) { (void)host_misuse("never freed: device memory, %zu pieces", left[0]); }
    if (left[1] > 0) { (void)host_misuse("never freed: pinned memory, %zu pieces", left[1]); }
}

void host_memory_end(void)
{
    for (size_t i = 0; i < host.block_count; i++) {
        struct host_block *b = &host.blocks[i];
        if (b->device == HOST_PINNED) {
            if (!b->freed) { free(b->data); }
            continue;
        }
        ASAN_UNPOISON_MEMORY_REGION(b->map, b->map_bytes);
        munmap(b->map, b->map_bytes);
    }
    free(host.blocks);
    host.blocks = NULL;
    host.block_count = 0;
    sigaction(SIGSEGV, &segv_before, NULL);
}
