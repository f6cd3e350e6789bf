/* Schedules the lanes of a block and launches kernels; see simt.h.
 *
 * There is one scheduler, which every lane goes back to when it waits: what it then finds (nobody can go on, and these
 * wait for those) is what it complains of. */
#include <cstdarg>
#include <cstdio>
#include <map>
#include <mutex>

#include "simt_private.h"

using namespace simt;

__attribute__((format(printf, 1, 0))) static void complaint_set(const char *format, va_list arguments)
{
    char text[512];
    vsnprintf(text, sizeof text, format, arguments);
    machine->complaint = text;
    machine->failed = true;
}

__attribute__((format(printf, 1, 2))) static void block_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    complaint_set(format, arguments);
    va_end(arguments);
}

void simt_complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    complaint_set(format, arguments);
    va_end(arguments);
    for (;;)
        lane_pause(running);
}

static std::string where(uint32_t lane)
{
    const struct lane &at = *machine->lanes[lane];
    char text[256];
    const char *file = at.site.file == nullptr ? "" : at.site.file;
    const char *slash = strrchr(file, '/');
    if (at.state == LANE_LEFT)
        snprintf(text, sizeof text, "lane %u has left the kernel", (unsigned)lane);
    else
        snprintf(text, sizeof text, "lane %u waits at %s (%s:%d, mask %08x)", (unsigned)lane, at.site.word,
                 slash == nullptr ? file : slash + 1, at.site.line, (unsigned)at.mask);
    return text;
}

bool simt::same_site(const struct simt_site &a, const struct simt_site &b)
{
    return a.line == b.line && (a.word == b.word || strcmp(a.word, b.word) == 0) &&
           (a.file == b.file || strcmp(a.file, b.file) == 0);
}

/* Nobody can go on: says why. */
static void block_stuck()
{
    for (uint32_t i = 0; i < machine->lane_count; i++) {
        const struct lane &lane = *machine->lanes[i];
        if (lane.state != LANE_AT_MEETING)
            continue;
        uint32_t first = i / WARP * WARP;
        for (uint32_t k = 0; k < WARP; k++) {
            if ((lane.mask >> k & 1) == 0)
                continue;
            if (first + k >= machine->lane_count)
                return block_fail("%s for lane %u, which does not exist", where(i).c_str(), (unsigned)(first + k));
            const struct lane &other = *machine->lanes[first + k];
            if (other.state != LANE_AT_MEETING || !same_site(other.site, lane.site) || other.mask != lane.mask)
                return block_fail("%s, but %s", where(i).c_str(), where(first + k).c_str());
        }
    }
    for (uint32_t i = 1; i < machine->lane_count; i++) {
        const struct lane &first = *machine->lanes[0], &lane = *machine->lanes[i];
        if (lane.state != first.state || (lane.state == LANE_AT_BARRIER && !same_site(lane.site, first.site)))
            return block_fail("%s, but %s", where(0).c_str(), where(i).c_str());
    }
    block_fail("the shim does not know why nobody can go on");
}

/* --- who runs next -------------------------------------------------------------------------------------------------
 */

static uint64_t random_next()
{
    uint64_t x = machine->seed += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void simt::set_ready(uint32_t lane)
{
    machine->lanes[lane]->state = LANE_READY;
    machine->meeting[lane / WARP] &= ~((uint32_t)1 << lane % WARP);
    machine->ready[lane / 64] |= (uint64_t)1 << lane % 64;
}

/* Takes a lane that can go on, by the thread's order; -1 when there is none. */
static int take_ready()
{
    int words = static_cast<int>((machine->lane_count + 63) / 64);
    int from = machine->order == SIMT_RANDOM ? static_cast<int>(random_next() % (unsigned)words) : 0;
    for (int i = 0; i < words; i++) {
        int w = machine->order == SIMT_REVERSED ? words - 1 - i : (from + i) % words;
        uint64_t set = machine->ready[w];
        if (set == 0)
            continue;
        int bit = __builtin_ctzll(set);
        if (machine->order == SIMT_REVERSED)
            bit = 63 - __builtin_clzll(set);
        if (machine->order == SIMT_RANDOM) {
            int by = static_cast<int>(random_next() % 64);
            uint64_t turned = by == 0 ? set : set >> by | set << (64 - by);
            bit = (__builtin_ctzll(turned) + by) % 64;
        }
        machine->ready[w] &= ~((uint64_t)1 << bit);
        return w * 64 + bit;
    }
    return -1;
}

/* --- shared memory -------------------------------------------------------------------------------------------------
 */

/* Freed and made anew for every block, so that ASan knows its bounds; without ASan a canary stands behind it. */
static void piece_make(struct shared_piece *piece, size_t bytes)
{
    size_t whole = (bytes + 15) / 16 * 16;
#if !defined(__SANITIZE_ADDRESS__)
    whole += CANARY_BYTES;
#else
    whole = bytes;
#endif
    piece->bytes = std::unique_ptr<unsigned char[]>(new unsigned char[whole == 0 ? 1 : whole]);
    piece->size = bytes;
    memset(piece->bytes.get(), 0xff, whole);
    if (machine->watching)
        race_forget(piece->bytes.get(), whole);
}

static void piece_check(const struct shared_piece &piece)
{
#if !defined(__SANITIZE_ADDRESS__)
    for (size_t i = 0; piece.bytes && i < CANARY_BYTES; i++)
        if (piece.bytes[piece.size + i] != 0xff && !machine->failed)
            block_fail("shared memory of %zu bytes was written beyond its end", piece.size);
#endif
    (void)piece;
}

bool simt_sees_races(void)
{
#ifdef SIMT_WATCHES
    return true;
#else
    return false;
#endif
}

bool simt_sees_overruns(void)
{
#if defined(__SANITIZE_ADDRESS__)
    return false;
#else
    return true;
#endif
}

void *simt_shared(const void *key, size_t bytes)
{
    for (const struct shared_piece &piece : machine->shared)
        if (piece.key == key)
            return piece.bytes.get();
    machine->static_bytes += bytes;
    if (machine->static_bytes + machine->dynamic.size > SHARED_BYTES_MAX)
        simt_complain("more than %d bytes of shared memory", SHARED_BYTES_MAX);
    machine->shared.emplace_back();
    machine->shared.back().key = key;
    piece_make(&machine->shared.back(), bytes);
    return machine->shared.back().bytes.get();
}

void *simt_shared_dynamic()
{
    return machine->dynamic.bytes.get();
}

static void shared_end()
{
    for (const struct shared_piece &piece : machine->shared)
        piece_check(piece);
    piece_check(machine->dynamic);
    machine->shared.clear();
}

/* --- launches ------------------------------------------------------------------------------------------------------
 */

/* Whether all lanes wait at one barrier; then they may go on. */
static bool open_barrier()
{
    int votes = 0;
    for (uint32_t i = 0; i < machine->lane_count; i++) {
        const struct lane &lane = *machine->lanes[i];
        if (lane.state != LANE_AT_BARRIER || !same_site(lane.site, machine->lanes[0]->site))
            return false;
        votes += lane.vote;
    }
    machine->vote_count = votes;
    if (machine->watching)
        race_barrier();
    for (uint32_t i = 0; i < machine->lane_count; i++)
        set_ready(i);
    return true;
}

static bool all_left()
{
    for (uint32_t i = 0; i < machine->lane_count; i++)
        if (machine->lanes[i]->state != LANE_LEFT)
            return false;
    return true;
}

static bool block_run(uint3 block, dim3 grid, dim3 size)
{
    machine->static_bytes = 0;
    if (machine->watching)
        race_block();
    piece_make(&machine->dynamic, machine->dynamic.size);
    for (uint32_t i = 0; i < machine->lane_count; i++) {
        uint3 thread = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
        machine->lanes[i]->place = {thread, block, size, grid};
        machine->lanes[i]->copy_group = 0;
        machine->lanes[i]->site = {};
        set_ready(i);
    }
    while (!machine->failed) {
        int next = take_ready();
        if (next >= 0)
            lane_run(machine->lanes[static_cast<size_t>(next)].get());
        else if (all_left())
            break;
        else if (!open_barrier())
            block_stuck();
    }
    shared_end();
    if (!machine->failed)
        return true;
    memset(machine->ready, 0, sizeof machine->ready);
    memset(machine->meeting, 0, sizeof machine->meeting);
    for (auto &lane : machine->lanes)
        lane_forget(lane.get());
    return false;
}

/* The number of the i-th block to run. */
static uint64_t block_at(uint64_t i, uint64_t blocks, uint64_t turn)
{
    if (machine->order == SIMT_REVERSED)
        return blocks - 1 - i;
    return machine->order == SIMT_RANDOM ? (i + turn) % blocks : i;
}

static cudaError_t refuse(cudaError_t error, const char *complaint)
{
    machine->complaint = complaint;
    return error;
}

cudaError_t simt_launch(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                        cudaStream_t stream)
{
    (void)stream;
    machine_need();
    uint64_t lanes = (uint64_t)block.x * block.y * block.z, blocks = (uint64_t)grid.x * grid.y * grid.z;
    if (lanes == 0 || lanes > LANES_MAX || block.z > 64)
        return refuse(cudaErrorInvalidConfiguration, "a block has 1 to 1024 lanes, 64 in z");
    if (blocks == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
        return refuse(cudaErrorInvalidConfiguration, "a grid has 1 to 2^31 - 1 blocks in x, 65535 in y and z");
    if (shared_bytes > SHARED_BYTES_MAX)
        return refuse(cudaErrorInvalidValue, "more shared memory than a kernel gets without asking");
    machine->complaint.clear();
    machine->failed = false;
    while (machine->lanes.size() < lanes) {
        machine->lanes.push_back(std::unique_ptr<struct lane>(new struct lane()));
        lane_make(machine->lanes.back().get(), machine->lanes.size());
    }
    machine->lane_count = static_cast<uint32_t>(lanes);
    machine->kernel = reinterpret_cast<void (*)(const void *)>(const_cast<void *>(kernel));
    machine->argument = arguments[0];
    machine->argument_bytes = simt_kernel_bytes(kernel);
    machine->watching = simt_sees_races() && !machine->unwatched;
    if (machine->watching)
        race_launch();
    machine->dynamic.size = shared_bytes;
    uint64_t turn = machine->order == SIMT_RANDOM ? random_next() % blocks : 0;
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t b = block_at(i, blocks, turn);
        uint3 at = {(unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y), (unsigned)(b / grid.x / grid.y)};
        if (!block_run(at, grid, block))
            break;
    }
    machine->watching = false;
    return machine->failed ? cudaErrorLaunchFailure : cudaSuccess;
}

void simt_kernel_run(const void *kernel, dim3 grid, dim3 block, const void *argument, size_t shared_bytes)
{
    void *arguments[] = {const_cast<void *>(argument)};
    if (simt_launch(kernel, grid, block, arguments, shared_bytes, nullptr) == cudaSuccess)
        return;
    fprintf(stderr, "a kernel failed: %s\n", simt_complaint());
    abort();
}

void simt_set_order(enum simt_order order, uint64_t seed)
{
    machine_need();
    machine->order = order;
    machine->seed = seed;
}

void simt_watch(bool races)
{
    machine_need();
    machine->unwatched = !races;
}

const char *simt_complaint(void)
{
    machine_need();
    return machine->complaint.c_str();
}

/* --- which kernels there are ----------------------------------------------------------------------------------------
 */

static std::mutex known_lock;
static std::map<const void *, size_t> known;

void simt_know_kernel(const void *kernel, size_t argument_bytes)
{
    std::lock_guard<std::mutex> hold(known_lock);
    known[kernel] = argument_bytes;
}

size_t simt_kernel_bytes(const void *kernel)
{
    std::lock_guard<std::mutex> hold(known_lock);
    auto found = known.find(kernel);
    return found == known.end() ? 0 : found->second;
}
