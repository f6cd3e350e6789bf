/* Shared by the files of the SIMT shim; see simt.h. simt.cc schedules lanes, switches between them and launches;
 * simt_race.cc watches their accesses. */
#ifndef TESTS_SIMT_PRIVATE_H
#define TESTS_SIMT_PRIVATE_H

#include <memory>
#include <new>
#include <string>
#include <vector>

#include "simt_words.h"

#if defined(__has_feature) /* clang's way to say it */
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#elif __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

namespace simt
{
enum {
    LANES_MAX = 1024,
    WARP = 32,
    SHARED_BYTES_MAX = 48 * 1024,    /* the limit of a kernel that does not ask the driver for more */
    SHARED_BYTES_ASKED = 227 * 1024, /* of one that does, on Hopper */
    SHARED_ALIGNMENT = 1024,         /* of dynamic shared memory, as wgmma.h needs it */
    CANARY_BYTES = 64,
};

/* A place to switch to: the scheduler's, or a lane's. */
struct fiber {
    void *jump[5]; /* __builtin_setjmp's */
    void *fake_stack;
    const void *stack;
    size_t stack_bytes;
    void *tsan;
};

enum lane_state { LANE_READY, LANE_AT_BARRIER, LANE_AT_MEETING, LANE_AT_MBARRIER, LANE_LEFT };

struct async_copy {
    void *to;
    const void *from;
    uint32_t bytes, zeros_from, group;
};

/* An operation that a lane's warp does later. */
struct later {
    struct simt_site site;
    simt_combine *combine;
    std::vector<unsigned char> record;
    uint32_t group;
};

struct lane {
    struct fiber fiber;
    bool entered; /* it has a stack with a frame on it */
    enum lane_state state;
    struct simt_place place;
    struct simt_site site; /* where it waits */
    uint32_t mask;         /* the lanes of its warp for which it waits */
    void *record;
    bool vote;
    uint32_t copy_group;
    std::vector<struct async_copy> copies;
    uint32_t later_group;
    std::vector<struct later> laters;
    const struct simt_mbarrier *mbarrier; /* where it waits */
};

struct race_watch;

struct shared_delete {
    void operator()(unsigned char *bytes) const
    {
        operator delete[](bytes, std::align_val_t(SHARED_ALIGNMENT));
    }
};

struct shared_piece {
    const void *key; /* the declaration */
    std::unique_ptr<unsigned char[], struct shared_delete> bytes;
    size_t size;
};

/* One per thread that launches. */
struct machine {
    struct fiber scheduler;
    std::vector<std::unique_ptr<struct lane>> lanes;
    uint32_t lane_count; /* of the block that runs */
    uint64_t ready[LANES_MAX / 64];
    uint32_t meeting[LANES_MAX / WARP]; /* which lanes of a warp are LANE_AT_MEETING */
    void (*kernel)(const void *);
    const void *argument;
    std::vector<struct shared_piece> shared; /* a few */
    struct shared_piece dynamic;
    size_t static_bytes, shared_max;
    size_t argument_bytes; /* 0: not known */
    struct race_watch *watch;
    bool watching;  /* a kernel runs, and its lanes are watched for races */
    bool combining; /* the same while lanes combine, when only what they report is watched */
    bool unwatched; /* the setting for the thread's launches from now on */
    int vote_count;
    bool failed;
    std::string complaint;
    enum simt_order order;
    uint64_t seed;

    ~machine();
};

/* The calling thread's machine. A plain pointer, because other thread-local objects are checked for initialisation at
 * every use. */
extern __thread struct machine *machine;
extern __thread struct lane *running;

/* --- simt.cc */

void machine_need(); /* makes the thread's machine, which ends with the thread */
void lane_make(struct lane *lane, size_t number);
void lane_run(struct lane *lane);    /* from the scheduler to a lane, until it waits or has left */
void lane_pause(struct lane *lane);  /* from a lane to the scheduler, until that switches back */
void lane_forget(struct lane *lane); /* a lane that was stopped inside a kernel begins anew with the next one */

inline uint32_t lane_number(const struct lane *lane)
{
    const struct simt_place &at = lane->place;
    return at.thread.x + at.block_size.x * (at.thread.y + at.block_size.y * at.thread.z);
}

void set_ready(uint32_t lane); /* by its number in the block */
bool same_site(const struct simt_site &a, const struct simt_site &b);

/* --- simt_race.cc */

enum race_kind { RACE_READ, RACE_WRITE, RACE_ATOMIC, RACE_COPY_BEGINS, RACE_COPY_ENDS };

void race_launch();
void race_block();
void race_barrier();
void race_warp(uint32_t first, uint32_t mask);  /* the lanes of a mask, the warp's first one being `first` */
void race_arrive(const void *mbarrier);         /* by the lane that runs */
void race_passed(const void *mbarrier);         /* the lane that runs has seen the arrivals of a phase that has ended */
void race_forget(const void *at, size_t bytes); /* memory that is new */
void race_touch(const void *at, size_t bytes, enum race_kind kind); /* by the lane that runs */
void race_watch_delete(struct race_watch *watch);
} // namespace simt

#endif
