/* Schedules the lanes of a block and launches kernels; see simt.h.
 *
 * There is one scheduler, to which every lane returns when it waits. If no lane can go on, it complains and names the
 * lanes that wait and those that they wait for. */
#include <cstdarg>
#include <cstdio>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <ucontext.h>

#include "simt_private.h"

/* --- Fibers --- */

/* Lanes as fibers of the calling thread.
 *
 * A fiber is entered once with makecontext and then lives from block to block; all later switches are the compiler's
 * own setjmp, because swapcontext asks the kernel about signals each time. Every switch is announced to the sanitizers.
 */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif
#if defined(__clang__)
#define ANY_KERNEL __attribute__((no_sanitize("function"))) /* it is called with a pointer for its reference */
#define OPAQUE __attribute__((noinline))
#else
#define ANY_KERNEL
#define OPAQUE __attribute__((noipa)) /* callers must not count on registers that a switch does not keep */
#endif
#define PLAIN OPAQUE __attribute__((no_sanitize_address, no_sanitize_thread))

namespace simt
{
enum { STACK_BYTES = 128 * 1024, GUARD_BYTES = 4096 };

__thread struct machine *machine;
__thread struct lane *running;

/* The sanitizers' part of a switch, on the side that leaves and on the side that comes. */
static void before_switch(struct fiber *from, const struct fiber *to)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(to->tsan, 0);
#endif
    (void)from, (void)to;
}

static void after_switch(struct fiber *here, struct fiber *came_from)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(here->fake_stack, &came_from->stack, &came_from->stack_bytes);
#endif
    (void)here, (void)came_from;
}

PLAIN static void jump_to(void **jump)
{
    __builtin_longjmp(jump, 1);
}

PLAIN void lane_pause(struct lane *lane)
{
    before_switch(&lane->fiber, &machine->scheduler);
    if (__builtin_setjmp(lane->fiber.jump) == 0) { jump_to(machine->scheduler.jump); }
    struct fiber unused;
    after_switch(&running->fiber, &unused);
}

static void lane_leave(struct lane *lane)
{
    if (!lane->copies.empty()) {
        simt_complain("lane %u left with asynchronous copies that it never waited for",
                      (unsigned)(lane->place.thread.x));
    }
    if (!lane->laters.empty()) {
        simt_complain("lane %u left with products that it never waited for", (unsigned)(lane->place.thread.x));
    }
    lane->state = LANE_LEFT;
    lane_pause(lane);
}

/* A lane's whole life: one kernel after the other. */
ANY_KERNEL static void lane_main()
{
    struct lane *lane = running;
    after_switch(&lane->fiber, &machine->scheduler);
    for (;;) {
        machine->kernel(machine->argument);
        lane_leave(lane);
    }
}

static void *stack_new()
{
    size_t bytes = STACK_BYTES + GUARD_BYTES;
    void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (at == MAP_FAILED || mprotect(at, GUARD_BYTES, PROT_NONE) != 0) {
        perror("simt: no memory for a lane's stack");
        abort();
    }
    return static_cast<char *>(at) + GUARD_BYTES;
}

PLAIN static void lane_enter(struct lane *lane)
{
    ucontext_t entry;
    getcontext(&entry);
    entry.uc_stack.ss_sp = const_cast<void *>(lane->fiber.stack);
    entry.uc_stack.ss_size = lane->fiber.stack_bytes;
    entry.uc_link = nullptr;
    makecontext(&entry, lane_main, 0);
    lane->entered = true;
    setcontext(&entry); /* control never returns this way */
}

PLAIN void lane_run(struct lane *lane)
{
    running = lane;
#if defined(__SANITIZE_THREAD__)
    machine->scheduler.tsan = __tsan_get_current_fiber();
#endif
    before_switch(&machine->scheduler, &lane->fiber);
    if (__builtin_setjmp(machine->scheduler.jump) == 0) {
        if (lane->entered) { jump_to(lane->fiber.jump); }
        lane_enter(lane);
    }
    struct fiber unused;
    after_switch(&machine->scheduler, &unused);
}

/* Stacks begin at different offsets in their pages, or lanes would drive each other out of the first-level cache. */
void lane_make(struct lane *lane, size_t number)
{
    lane->fiber.stack = stack_new();
    lane->fiber.stack_bytes = STACK_BYTES - number % 16 * 256;
#if defined(__SANITIZE_THREAD__)
    lane->fiber.tsan = __tsan_create_fiber(0);
#endif
}

void lane_forget(struct lane *lane)
{
    lane->entered = false;
    lane->fiber.fake_stack = nullptr;
    lane->copies.clear();
    lane->laters.clear();
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(lane->fiber.stack, lane->fiber.stack_bytes);
#endif
}

machine::~machine()
{
    race_watch_delete(watch);
    for (auto &lane : lanes) {
#if defined(__SANITIZE_THREAD__)
        __tsan_destroy_fiber(lane->fiber.tsan);
#endif
#if defined(__SANITIZE_ADDRESS__)
        __asan_unpoison_memory_region(lane->fiber.stack, lane->fiber.stack_bytes);
#endif
        munmap(static_cast<char *>(const_cast<void *>(lane->fiber.stack)) - GUARD_BYTES, STACK_BYTES + GUARD_BYTES);
    }
}

void machine_need()
{
    static thread_local std::unique_ptr<struct machine> owner;
    if (owner) { return; }
    owner.reset(new struct machine());
    machine = owner.get();
}
} // namespace simt

using namespace simt;

/* --- Means of waiting --- */

/* The lanes of a block wait at barriers and at the common operations of a warp, and each by itself for its copies. The
 * lane that comes last to a meeting computes the results of all. */

const struct simt_place &simt_self()
{
    return running->place;
}

static void lane_wait(struct lane *lane, enum lane_state state, const struct simt_site &site, uint32_t mask)
{
    lane->state = state;
    lane->site = site;
    lane->mask = mask;
    lane_pause(lane);
}

void simt_meet(struct simt_site site, uint32_t mask, simt_combine *combine, void *record)
{
    struct lane *lane = running;
    uint32_t number = lane_number(lane), first = number / WARP * WARP;
    if ((mask >> number % WARP & 1) == 0) {
        simt_complain("lane %u calls %s (%s:%d) with a mask that leaves it out (%08x)", (unsigned)number, site.word,
                      site.file, site.line, (unsigned)mask);
    }
    lane->record = record;
    lane->state = LANE_AT_MEETING;
    lane->site = site;
    lane->mask = mask;
    uint32_t *here = &machine->meeting[first / WARP];
    *here |= (uint32_t)1 << number % WARP;
    if ((mask & ~*here) != 0) { return lane_pause(lane); }
    void *records[WARP] = {};
    for (uint32_t k = 0; k < WARP; k++) {
        if ((mask >> k & 1) == 0) { continue; }
        const struct lane *other = machine->lanes[first + k].get();
        if (other->mask != mask || !same_site(other->site, site)) { return lane_pause(lane); }
        records[k] = other->record;
    }
    if (combine == nullptr) { /* __syncwarp, the one that orders memory */
        if (machine->watching) { race_warp(first, mask); }
    } else {
        machine->combining = machine->watching;
        machine->watching = false; /* it reads the lanes' own records */
        combine(records, mask);
        machine->watching = machine->combining;
        machine->combining = false;
    }
    for (uint32_t k = 0; k < WARP; k++) {
        if (mask >> k & 1) { set_ready(first + k); }
    }
    lane_pause(lane);
}

int simt_barrier(struct simt_site site, enum simt_vote vote, bool mine)
{
    struct lane *lane = running;
    lane->vote = mine;
    lane_wait(lane, LANE_AT_BARRIER, site, 0);
    int count = machine->vote_count;
    if (vote == SIMT_COUNT) { return count; }
    return vote == SIMT_ANY ? count > 0 : count == static_cast<int>(machine->lane_count);
}

/* --- words that meet -----------------------------------------------------------------------------------------------
 */

struct ballot_record {
    bool mine;
    uint32_t all;
};

static void ballot_combine(void *const records[32], uint32_t mask)
{
    uint32_t all = 0;
    for (uint32_t k = 0; k < WARP; k++) {
        if (mask >> k & 1) { all |= (uint32_t) static_cast<struct ballot_record *>(records[k])->mine << k; }
    }
    for (uint32_t k = 0; k < WARP; k++) {
        if (mask >> k & 1) { static_cast<struct ballot_record *>(records[k])->all = all; }
    }
}

uint32_t simt_ballot(struct simt_site site, uint32_t mask, bool mine)
{
    struct ballot_record record = {mine, 0};
    simt_meet(site, mask, ballot_combine, &record);
    return record.all;
}

struct shuffle_record {
    uint64_t mine, result;
    int from; /* a lane of the warp */
};

static void shuffle_combine(void *const records[32], uint32_t mask)
{
    for (uint32_t k = 0; k < WARP; k++) {
        if ((mask >> k & 1) == 0) { continue; }
        struct shuffle_record *to = static_cast<struct shuffle_record *>(records[k]);
        if ((mask >> to->from & 1) == 0) {
            simt_complain("lane %u of a warp shuffles from lane %d, which is not in the mask %08x", (unsigned)k,
                          to->from, (unsigned)mask);
        }
        to->result = static_cast<struct shuffle_record *>(records[to->from])->mine;
    }
}

uint64_t simt_shuffle(struct simt_site site, enum simt_shuffle how, uint32_t mask, uint64_t mine, int other, int width)
{
    int self = static_cast<int>(lane_number(running) % WARP), first = self / width * width;
    int from = first + other % width;
    if (how == SIMT_XOR) { from = (self ^ other) < first + width ? self ^ other : self; }
    struct shuffle_record record = {mine, 0, from};
    simt_meet(site, mask, shuffle_combine, &record);
    return record.result;
}

void simt_copy_async(void *to, const void *from, uint32_t bytes, uint32_t zeros_from)
{
    struct lane *lane = running;
    if (reinterpret_cast<uintptr_t>(to) % bytes != 0 || reinterpret_cast<uintptr_t>(from) % bytes != 0) {
        simt_complain("an asynchronous copy of %u bytes is not aligned to them", (unsigned)bytes);
    }
    race_touch(to, bytes, RACE_COPY_BEGINS);
    race_touch(from, zeros_from, RACE_READ);
    lane->copies.push_back({to, from, bytes, zeros_from, lane->copy_group});
}

void simt_copy_commit()
{
    running->copy_group++;
}

void simt_copy_wait(uint32_t groups_left)
{
    struct lane *lane = running;
    std::vector<struct async_copy> later;
    for (const struct async_copy &copy : lane->copies) {
        if (copy.group + groups_left >= lane->copy_group) {
            later.push_back(copy);
            continue;
        }
        race_touch(copy.from, copy.zeros_from, RACE_READ);
        race_touch(copy.to, copy.bytes, RACE_COPY_ENDS);
        memcpy(copy.to, copy.from, copy.zeros_from);
        memset(static_cast<char *>(copy.to) + copy.zeros_from, 0, copy.bytes - copy.zeros_from);
    }
    lane->copies.swap(later);
}

/* --- Hopper's barriers and products --- */

void simt_mbarrier_begin(struct simt_mbarrier *at, uint32_t expected)
{
    race_touch(at, sizeof *at, RACE_WRITE);
    *at = {static_cast<uint16_t>(expected), static_cast<uint16_t>(expected), 0};
}

bool simt_mbarrier_ended(const struct simt_mbarrier *at, uint32_t parity)
{
    if (at->phase % 2 == parity) { return false; }
    if (machine->watching) { race_passed(at); }
    return true;
}

void simt_mbarrier_arrive(struct simt_mbarrier *at)
{
    if (machine->watching) { race_arrive(at); }
    if (--at->pending > 0) { return; }
    at->pending = at->expected;
    at->phase++;
    for (uint32_t i = 0; i < machine->lane_count; i++) {
        struct lane *lane = machine->lanes[i].get();
        if (lane->state == LANE_AT_MBARRIER && lane->mbarrier == at) { set_ready(i); }
    }
}

void simt_mbarrier_wait(struct simt_site site, struct simt_mbarrier *at, uint32_t parity)
{
    struct lane *lane = running;
    lane->mbarrier = at;
    while (!simt_mbarrier_ended(at, parity)) { lane_wait(lane, LANE_AT_MBARRIER, site, 0); }
}

void simt_later(struct simt_site site, simt_combine *combine, const void *record, size_t bytes)
{
    const unsigned char *from = static_cast<const unsigned char *>(record);
    running->laters.push_back({site, combine, {from, from + bytes}, running->later_group});
}

void simt_later_commit()
{
    running->later_group++;
}

void simt_later_wait(uint32_t groups_left)
{
    struct lane *lane = running;
    size_t done = 0;
    for (; done < lane->laters.size(); done++) {
        struct later &later = lane->laters[done];
        if (later.group + groups_left >= lane->later_group) { break; }
        simt_meet(later.site, 0xffffffffu, later.combine, later.record.data());
    }
    lane->laters.erase(lane->laters.begin(), lane->laters.begin() + static_cast<std::ptrdiff_t>(done));
}

/* --- The scheduler --- */

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
    for (;;) { lane_pause(running); }
}

static std::string where(uint32_t lane)
{
    const struct lane &at = *machine->lanes[lane];
    char text[256];
    const char *file = at.site.file == nullptr ? "" : at.site.file;
    const char *slash = strrchr(file, '/');
    if (at.state == LANE_LEFT) {
        snprintf(text, sizeof text, "lane %u has left the kernel", (unsigned)lane);
    } else {
        snprintf(text, sizeof text, "lane %u waits at %s (%s:%d, mask %08x)", (unsigned)lane, at.site.word,
                 slash == nullptr ? file : slash + 1, at.site.line, (unsigned)at.mask);
    }
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
        if (lane.state != LANE_AT_MEETING) { continue; }
        uint32_t first = i / WARP * WARP;
        for (uint32_t k = 0; k < WARP; k++) {
            if ((lane.mask >> k & 1) == 0) { continue; }
            if (first + k >= machine->lane_count) {
                return block_fail("%s for lane %u, which does not exist", where(i).c_str(), (unsigned)(first + k));
            }
            const struct lane &other = *machine->lanes[first + k];
            if (other.state != LANE_AT_MEETING || !same_site(other.site, lane.site) || other.mask != lane.mask) {
                return block_fail("%s, but %s", where(i).c_str(), where(first + k).c_str());
            }
        }
    }
    for (uint32_t i = 1; i < machine->lane_count; i++) {
        const struct lane &first = *machine->lanes[0], &lane = *machine->lanes[i];
        if (lane.state != first.state || (lane.state == LANE_AT_BARRIER && !same_site(lane.site, first.site))) {
            return block_fail("%s, but %s", where(0).c_str(), where(i).c_str());
        }
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
        if (set == 0) { continue; }
        int bit = __builtin_ctzll(set);
        if (machine->order == SIMT_REVERSED) { bit = 63 - __builtin_clzll(set); }
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

/* A piece is freed and made anew for every block, so that ASan knows its bounds; without ASan a canary follows it. */
static void piece_make(struct shared_piece *piece, size_t bytes)
{
    size_t whole = (bytes + 15) / 16 * 16;
#if !defined(__SANITIZE_ADDRESS__)
    whole += CANARY_BYTES;
#else
    whole = bytes;
#endif
    piece->bytes =
        decltype(piece->bytes)(new (std::align_val_t(SHARED_ALIGNMENT)) unsigned char[whole == 0 ? 1 : whole]);
    piece->size = bytes;
    memset(piece->bytes.get(), 0xff, whole);
    if (machine->watching) { race_forget(piece->bytes.get(), whole); }
}

static void piece_check(const struct shared_piece &piece)
{
#if !defined(__SANITIZE_ADDRESS__)
    for (size_t i = 0; piece.bytes && i < CANARY_BYTES; i++) {
        if (piece.bytes[piece.size + i] != 0xff && !machine->failed) {
            block_fail("shared memory of %zu bytes was written beyond its end", piece.size);
        }
    }
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
    for (const struct shared_piece &piece : machine->shared) {
        if (piece.key == key) { return piece.bytes.get(); }
    }
    machine->static_bytes += bytes;
    if (machine->static_bytes + machine->dynamic.size > machine->shared_max) {
        simt_complain("more than %zu bytes of shared memory", machine->shared_max);
    }
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
    for (const struct shared_piece &piece : machine->shared) { piece_check(piece); }
    piece_check(machine->dynamic);
    machine->shared.clear();
}

/* --- launches ------------------------------------------------------------------------------------------------------
 */

/* Returns whether all lanes wait at one barrier; then they may go on. */
static bool open_barrier()
{
    int votes = 0;
    for (uint32_t i = 0; i < machine->lane_count; i++) {
        const struct lane &lane = *machine->lanes[i];
        if (lane.state != LANE_AT_BARRIER || !same_site(lane.site, machine->lanes[0]->site)) { return false; }
        votes += lane.vote;
    }
    machine->vote_count = votes;
    if (machine->watching) { race_barrier(); }
    for (uint32_t i = 0; i < machine->lane_count; i++) { set_ready(i); }
    return true;
}

static bool all_left()
{
    for (uint32_t i = 0; i < machine->lane_count; i++) {
        if (machine->lanes[i]->state != LANE_LEFT) { return false; }
    }
    return true;
}

static bool block_run(uint3 block, dim3 grid, dim3 size)
{
    machine->static_bytes = 0;
    if (machine->watching) { race_block(); }
    piece_make(&machine->dynamic, machine->dynamic.size);
    for (uint32_t i = 0; i < machine->lane_count; i++) {
        uint3 thread = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
        machine->lanes[i]->place = {thread, block, size, grid};
        machine->lanes[i]->copy_group = machine->lanes[i]->later_group = 0;
        machine->lanes[i]->site = {};
        set_ready(i);
    }
    while (!machine->failed) {
        int next = take_ready();
        if (next >= 0) {
            lane_run(machine->lanes[static_cast<size_t>(next)].get());
        } else if (all_left()) {
            break;
        } else if (!open_barrier()) {
            block_stuck();
        }
    }
    shared_end();
    if (!machine->failed) { return true; }
    memset(machine->ready, 0, sizeof machine->ready);
    memset(machine->meeting, 0, sizeof machine->meeting);
    for (auto &lane : machine->lanes) { lane_forget(lane.get()); }
    return false;
}

/* The number of the i-th block to run. */
static uint64_t block_at(uint64_t i, uint64_t blocks, uint64_t turn)
{
    if (machine->order == SIMT_REVERSED) { return blocks - 1 - i; }
    return machine->order == SIMT_RANDOM ? (i + turn) % blocks : i;
}

static cudaError_t refuse(cudaError_t error, const char *complaint)
{
    machine->complaint = complaint;
    return error;
}

static std::mutex known_lock;
static std::map<const void *, size_t> known, allowed;

cudaError_t simt_allow_shared(const void *kernel, size_t bytes)
{
    if (bytes > SHARED_BYTES_ASKED) { return cudaErrorInvalidValue; }
    std::lock_guard<std::mutex> hold(known_lock);
    allowed[kernel] = bytes;
    return cudaSuccess;
}

static size_t shared_allowed(const void *kernel)
{
    std::lock_guard<std::mutex> hold(known_lock);
    auto found = allowed.find(kernel);
    return std::max<size_t>(SHARED_BYTES_MAX, found == allowed.end() ? 0 : found->second);
}

cudaError_t simt_launch(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                        cudaStream_t stream)
{
    (void)stream;
    machine_need();
    uint64_t lanes = (uint64_t)block.x * block.y * block.z, blocks = (uint64_t)grid.x * grid.y * grid.z;
    if (lanes == 0 || lanes > LANES_MAX || block.z > 64) {
        return refuse(cudaErrorInvalidConfiguration, "a block has 1 to 1024 lanes, 64 in z");
    }
    if (blocks == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
        return refuse(cudaErrorInvalidConfiguration, "a grid has 1 to 2^31 - 1 blocks in x, 65535 in y and z");
    }
    machine->shared_max = shared_allowed(kernel);
    if (shared_bytes > machine->shared_max) {
        return refuse(cudaErrorInvalidValue, "more shared memory than a kernel gets without asking");
    }
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
    if (machine->watching) { race_launch(); }
    machine->dynamic.size = shared_bytes;
    uint64_t turn = machine->order == SIMT_RANDOM ? random_next() % blocks : 0;
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t b = block_at(i, blocks, turn);
        uint3 at = {(unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y), (unsigned)(b / grid.x / grid.y)};
        if (!block_run(at, grid, block)) { break; }
    }
    machine->watching = false;
    return machine->failed ? cudaErrorLaunchFailure : cudaSuccess;
}

void simt_kernel_run(const void *kernel, dim3 grid, dim3 block, const void *argument, size_t shared_bytes)
{
    void *arguments[] = {const_cast<void *>(argument)};
    if (simt_launch(kernel, grid, block, arguments, shared_bytes, nullptr) == cudaSuccess) { return; }
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
