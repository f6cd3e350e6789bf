/* Finds lanes that race, from their accesses to memory and the order of these. See simt.h.
 *
 * The kernels are compiled with -fsanitize=thread, which puts a call before every load and store, and linked with the
 * functions at the end of this file in place of the sanitizer's own: so the shim sees each access of each lane, in
 * whatever order it runs them. Two accesses to a place conflict when one of them writes and nothing orders them. In a
 * block a barrier does; in a warp a __syncwarp that both take part in. A shuffle, a vote or an mma makes lanes meet but
 * orders no memory (CUDA C++ Programming Guide, "Warp Shuffle Functions"), and nothing orders blocks of a launch.
 *
 * A place is two bytes, the smallest access of a kernel. It remembers the last write and two reads: if more lanes have
 * read, two of different warps if there are such, so that a later write conflicts with one of them. */
#include "simt_private.h"

#include <cstdio>
#include <unordered_map>

#include <dlfcn.h>

namespace simt
{
enum {
    PLACE_BYTES = 2,
    PAGE_BYTES = 4096,
    PLACES = PAGE_BYTES / PLACE_BYTES,
    NEAR_PAGES = 64,
    PAGES_KEPT = 1024, /* from launch to launch */
    BARRIERS_MAX = (1 << 14) - 1,
    CLOCK_MAX = (1 << 16) - 1,
    BLOCKS_MAX = (1 << 22) - 1,
};

/* A lane's access and its time: the number of barriers that its block had passed, and its own clock, which a __syncwarp
 * advances and a barrier resets. */
struct touch {
    uint64_t block : 22; /* of the launch, from 1; 0: nothing was done */
    uint64_t barriers : 14;
    uint64_t clock : 16;
    uint64_t lane : 10;
    uint64_t atomic : 1;
    uint64_t arriving : 1; /* a write by an asynchronous copy that was not waited for yet */
};

struct place {
    struct touch write, reads[2];
};

struct page {
    uint64_t launch; /* the launch of the places; in any other launch they are empty */
    struct place places[PLACES];
};

/* Clocks of all lanes of a block: accesses with clocks below them are ordered before somebody. Empty: none is. */
typedef std::vector<uint32_t> horizon;

struct race_watch {
    uint64_t launch;
    uint32_t block, barriers;
    uint32_t clock[LANES_MAX];
    uint32_t known[LANES_MAX][WARP]; /* [lane][other lane of its warp]: accesses with clocks below this are ordered
                                        before the lane */
    bool across;                     /* lanes of the block order each other by other means than __syncthreads */
    std::vector<horizon> seen;       /* [lane] */
    std::unordered_map<const void *, horizon> mbarriers; /* arrivals so far */
    std::unordered_map<uintptr_t, std::unique_ptr<struct page>> pages;
    uintptr_t near_number[NEAR_PAGES];
    struct page *near[NEAR_PAGES];
};

void race_watch_delete(struct race_watch *watch)
{
    delete watch;
}

static struct place *place_at(struct race_watch *watch, uintptr_t address)
{
    uintptr_t number = address / PAGE_BYTES, slot = number % NEAR_PAGES;
    if (watch->near[slot] == nullptr || watch->near_number[slot] != number) {
        std::unique_ptr<struct page> &page = watch->pages[number];
        if (!page) { page.reset(new struct page()); }
        watch->near[slot] = page.get();
        watch->near_number[slot] = number;
    }
    struct page *page = watch->near[slot];
    if (page->launch != watch->launch) {
        memset(static_cast<void *>(page->places), 0, sizeof page->places);
        page->launch = watch->launch;
    }
    return &page->places[address % PAGE_BYTES / PLACE_BYTES];
}

/* --- what happens in a launch --------------------------------------------------------------------------------------
 */

void race_launch()
{
    if (machine->watch == nullptr) { machine->watch = new struct race_watch(); }
    struct race_watch *watch = machine->watch;
    if (watch->pages.size() > PAGES_KEPT) {
        watch->pages.clear();
        memset(watch->near, 0, sizeof watch->near);
    }
    watch->launch++;
    watch->block = 0;
}

static void clocks_reset(struct race_watch *watch)
{
    memset(watch->clock, 0, machine->lane_count * sizeof watch->clock[0]);
    memset(watch->known, 0, machine->lane_count * sizeof watch->known[0]);
    if (!watch->across) { return; }
    watch->across = false;
    watch->seen.clear();
    watch->mbarriers.clear();
}

void race_block()
{
    machine->watch->block++;
    machine->watch->barriers = 0;
    clocks_reset(machine->watch);
    if (machine->watch->block > BLOCKS_MAX) { abort(); }
}

void race_barrier()
{
    machine->watch->barriers++;
    clocks_reset(machine->watch);
    if (machine->watch->barriers > BARRIERS_MAX) { abort(); }
}

static void join(horizon *to, const horizon &from)
{
    to->resize(std::max(to->size(), from.size()));
    for (size_t i = 0; i < from.size(); i++) { (*to)[i] = std::max((*to)[i], from[i]); }
}

void race_warp(uint32_t first, uint32_t mask)
{
    struct race_watch *watch = machine->watch;
    uint32_t joined[WARP] = {};
    for (uint32_t k = 0; k < WARP; k++) {
        for (uint32_t i = 0; i < WARP && (mask >> k & 1) != 0; i++) {
            joined[i] = std::max(joined[i], watch->known[first + k][i]);
        }
    }
    for (uint32_t k = 0; k < WARP; k++) {
        if ((mask >> k & 1) != 0) { joined[k] = ++watch->clock[first + k]; }
    }
    for (uint32_t k = 0; k < WARP; k++) {
        if ((mask >> k & 1) != 0) { memcpy(watch->known[first + k], joined, sizeof joined); }
    }
    if (!watch->across) { return; }
    horizon all;
    for (uint32_t k = 0; k < WARP; k++) {
        if ((mask >> k & 1) != 0) { join(&all, watch->seen[first + k]); }
    }
    for (uint32_t k = 0; k < WARP; k++) {
        if ((mask >> k & 1) != 0) { watch->seen[first + k] = all; }
    }
}

/* What the lane that runs has done, and has seen of others, becomes part of what `to` orders. */
static void race_give(horizon *to)
{
    struct race_watch *watch = machine->watch;
    const uint32_t lane = lane_number(running), first = lane / WARP * WARP;
    if (!watch->across) {
        watch->across = true;
        watch->seen.assign(machine->lane_count, {});
    }
    join(to, watch->seen[lane]);
    to->resize(machine->lane_count);
    for (uint32_t k = 0; k < WARP && first + k < machine->lane_count; k++) {
        (*to)[first + k] = std::max((*to)[first + k], watch->known[lane][k]);
    }
    (*to)[lane] = ++watch->clock[lane];
}

void race_arrive(const void *mbarrier)
{
    race_give(&machine->watch->mbarriers[mbarrier]);
}

void race_passed(const void *mbarrier)
{
    struct race_watch *watch = machine->watch;
    if (watch->across) { join(&watch->seen[lane_number(running)], watch->mbarriers[mbarrier]); }
}

void race_forget(const void *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += PLACE_BYTES) {
        *place_at(machine->watch, reinterpret_cast<uintptr_t>(at) + i) = {};
    }
}

/* --- accesses ------------------------------------------------------------------------------------------------------
 */

/* Returns whether that access is ordered before the lane that runs now. */
static bool is_behind(const struct race_watch *watch, const struct touch &then, uint32_t lane)
{
    if (then.block == 0) { return true; }
    if (then.block != watch->block) { return false; }
    if (then.lane == lane || then.barriers < watch->barriers) { return true; }
    if (then.lane / WARP == lane / WARP && watch->known[lane][then.lane % WARP] > then.clock) { return true; }
    return watch->across && watch->seen[lane].size() > then.lane && watch->seen[lane][then.lane] > then.clock;
}

static bool is_within(const void *at, const void *from, size_t bytes)
{
    return reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(from) < bytes;
}

static std::string name_of(const void *at)
{
    char text[100];
    const struct shared_piece *in =
        is_within(at, machine->dynamic.bytes.get(), machine->dynamic.size) ? &machine->dynamic : nullptr;
    for (const struct shared_piece &piece : machine->shared) {
        in = is_within(at, piece.bytes.get(), piece.size) ? &piece : in;
    }
    if (in == nullptr) {
        snprintf(text, sizeof text, "global memory at %p", at);
    } else {
        snprintf(text, sizeof text, "byte %zu of %zu in shared memory",
                 static_cast<size_t>(static_cast<const unsigned char *>(at) - in->bytes.get()), in->size);
    }
    return text;
}

/* The place of the code, in the form that addr2line takes. */
static std::string name_of_code(const void *code)
{
    Dl_info info = {};
    char text[300] = "?";
    if (dladdr(code, &info) != 0 && info.dli_fname != nullptr) {
        snprintf(text, sizeof text, "addr2line -e %s %#zx", info.dli_fname,
                 static_cast<size_t>(static_cast<const char *>(code) - static_cast<const char *>(info.dli_fbase)) - 1);
    }
    return text;
}

[[noreturn]] static void complain(const void *at, const void *code, const char *does, const struct touch &then,
                                  const char *did)
{
    const struct lane *lane = running;
    const char *slash = lane->site.file == nullptr ? nullptr : strrchr(lane->site.file, '/');
    simt_complain("a race: lane %u %s %s, which lane %u of %s block %s, and nothing orders them; it last waited at %s "
                  "(%s:%d); %s",
                  (unsigned)lane_number(lane), does, name_of(at).c_str(), (unsigned)then.lane,
                  then.block == machine->watch->block ? "this" : "another", did,
                  lane->site.word == nullptr ? "nothing" : lane->site.word, slash == nullptr ? "" : slash + 1,
                  lane->site.line, name_of_code(code).c_str());
}

static void read_place(struct race_watch *watch, const void *at, struct place *place, const struct touch &now,
                       const void *code)
{
    if (place->write.arriving) { complain(at, code, "reads", place->write, "copies to, and has not waited for"); }
    if (!(now.atomic && place->write.atomic) && !is_behind(watch, place->write, now.lane)) {
        complain(at, code, "reads", place->write, "writes");
    }
    struct touch *a = &place->reads[0], *b = &place->reads[1];
    if (is_behind(watch, *a, now.lane)) {
        *a = now;
    } else if (is_behind(watch, *b, now.lane) || (a->block == b->block && a->lane / WARP == b->lane / WARP)) {
        *b = now;
    }
}

static void write_place(struct race_watch *watch, const void *at, struct place *place, const struct touch &now,
                        bool arrives, const void *code)
{
    if (place->write.arriving && !arrives) {
        complain(at, code, "writes", place->write, "copies to, and has not waited for");
    }
    if (!(now.atomic && place->write.atomic) && !is_behind(watch, place->write, now.lane)) {
        complain(at, code, "writes", place->write, "writes");
    }
    for (const struct touch &read : place->reads) {
        if (!(now.atomic && read.atomic) && !is_behind(watch, read, now.lane)) {
            complain(at, code, "writes", read, "reads");
        }
    }
    *place = {};
    place->write = now;
}

/* Records a lane's access to memory that others may see: not its stack, nor the record that identifies it, nor the
 * argument, which nobody writes. */
__attribute__((noinline)) static void record_touch(const void *at, size_t bytes, enum race_kind kind, const void *code)
{
    const struct lane *lane = running;
    if (is_within(at, lane->fiber.stack, lane->fiber.stack_bytes) || is_within(at, lane, sizeof *lane) ||
        is_within(at, machine->argument, machine->argument_bytes)) {
        return;
    }
    struct race_watch *watch = machine->watch;
    struct touch now = {};
    now.lane = lane_number(lane) & (LANES_MAX - 1);
    now.block = watch->block & BLOCKS_MAX;
    now.barriers = watch->barriers & BARRIERS_MAX;
    now.clock = watch->clock[now.lane] & CLOCK_MAX;
    now.atomic = kind == RACE_ATOMIC;
    now.arriving = kind == RACE_COPY_BEGINS;
    uintptr_t first = reinterpret_cast<uintptr_t>(at) / PLACE_BYTES * PLACE_BYTES;
    for (uintptr_t p = first; p < reinterpret_cast<uintptr_t>(at) + bytes; p += PLACE_BYTES) {
        const void *here = reinterpret_cast<const void *>(p);
        if (kind == RACE_READ) {
            read_place(watch, here, place_at(watch, p), now, code);
        } else {
            write_place(watch, here, place_at(watch, p), now, kind == RACE_COPY_ENDS, code);
        }
    }
}

/* Every load and store of a kernel comes here, also while nobody watches. */
static inline void touch_memory(const void *at, size_t bytes, enum race_kind kind, const void *code)
{
    if (machine != nullptr && machine->watching) { record_touch(at, bytes, kind, code); }
}

void race_touch(const void *at, size_t bytes, enum race_kind kind)
{
    touch_memory(at, bytes, kind, __builtin_return_address(0));
}
} // namespace simt

void simt_reads(const void *at, size_t bytes)
{
    simt::machine->watching |= simt::machine->combining;
    simt::race_touch(at, bytes, simt::RACE_READ);
    simt::machine->watching &= !simt::machine->combining;
}

void simt_updates(const void *at, size_t bytes)
{
    simt::race_touch(at, bytes, simt::RACE_ATOMIC);
}

/* --- what the compiler calls ---------------------------------------------------------------------------------------
 */

#ifdef SIMT_WATCHES
#define CALL __attribute__((visibility("default")))
#define ACCESS(bytes)                                                                                                  \
    CALL void __tsan_read##bytes(void *at)                                                                             \
    {                                                                                                                  \
        simt::touch_memory(at, bytes, simt::RACE_READ, __builtin_return_address(0));                                   \
    }                                                                                                                  \
    CALL void __tsan_write##bytes(void *at)                                                                            \
    {                                                                                                                  \
        simt::touch_memory(at, bytes, simt::RACE_WRITE, __builtin_return_address(0));                                  \
    }                                                                                                                  \
    CALL void __tsan_unaligned_read##bytes(void *at)                                                                   \
    {                                                                                                                  \
        simt::touch_memory(at, bytes, simt::RACE_READ, __builtin_return_address(0));                                   \
    }                                                                                                                  \
    CALL void __tsan_unaligned_write##bytes(void *at)                                                                  \
    {                                                                                                                  \
        simt::touch_memory(at, bytes, simt::RACE_WRITE, __builtin_return_address(0));                                  \
    }

extern "C" {
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void *at, size_t bytes)
{
    simt::touch_memory(at, bytes, simt::RACE_READ, __builtin_return_address(0));
}
void __tsan_write_range(void *at, size_t bytes)
{
    simt::touch_memory(at, bytes, simt::RACE_WRITE, __builtin_return_address(0));
}
void __tsan_init(void)
{
}
void __tsan_func_entry(void *)
{
}
void __tsan_func_exit(void *)
{
}
}
#endif
