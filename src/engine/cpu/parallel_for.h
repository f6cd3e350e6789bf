/* A parallel loop within a pass, so that a single text gets more than one core. The thread that computes owns the
 * helpers for as long as its pass takes, and publishes the pass step by step. A step is a number of chunks; each thread
 * claims the next one, every other thread from the end. A late or missing helper costs nothing: the others do its
 * chunks, and the owner waits only for chunks that a helper has begun.
 *
 * Helpers use only cores that nothing else of this process computes on: every computation reports when it begins and
 * ends, and each one under way leaves one helper fewer. Between the steps of a computation helpers spin for a moment;
 * outside of one they sleep. */
#ifndef ENGINE_CPU_PARALLEL_FOR_H
#define ENGINE_CPU_PARALLEL_FOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct parallel_for;

/* The most threads in one computation, with the owner: each further one brings less. */
enum { PARALLEL_THREADS_MAX = 8 };

/* Chunks of work that may be done in any order, at the same time. */
struct parallel_step {
    /* `thread` is the thread that runs the chunk: 0 is the owner, 1 up to parallel_for_threads - 1 are helpers. Each
     * chunk is done once, and a thread does one at a time. */
    void (*chunk)(void *context, unsigned thread, unsigned chunk);
    void *context;
    unsigned chunks; /* at most 65535 */
};

/* Starts the helpers of a process that may keep `cores` cores busy. Owns: the caller ends it with parallel_for_close
 * when nothing computes. Errors: STATUS_NO_MEMORY, STATUS_IO (no thread). */
MUST_CHECK enum status parallel_for_open(unsigned cores, struct parallel_for **out, struct err *err);

/* Ends the helpers and joins them. NULL is allowed. */
void parallel_for_close(struct parallel_for *parallel);

/* The first part of a chunk if `parts` parts are shared out evenly; it ends where the next one begins. */
static inline uint32_t parallel_for_first(uint32_t parts, unsigned chunk, unsigned chunks)
{
    return (uint32_t)((uint64_t)parts * chunk / chunks);
}

/* The threads that may take part in a step, with the owner. */
unsigned parallel_for_threads(const struct parallel_for *parallel);

/* Begins a computation. True: it owns the helpers from now on. False: it asked for none, another one has them, or no
 * core is left for them. Thread: any. */
bool parallel_for_enter(struct parallel_for *parallel, bool wants);

/* Ends it. `owns` is the result of parallel_for_enter. */
void parallel_for_leave(struct parallel_for *parallel, bool owns);

/* True if a thread claims chunks from the last one downwards, as every other thread does: its next chunk is then
 * adjacent to its previous one, and it gets about the same chunks in the same step of the next computation. */
static inline bool parallel_for_goes_down(unsigned thread)
{
    return thread % 2 == 1;
}

/* Runs all chunks of a step. They see all writes made before it, and afterwards the owner sees theirs. Thread: the
 * owner. */
void parallel_for_run(struct parallel_for *parallel, const struct parallel_step *step);

/* The least CPU quota of the process's control groups (version 1 or 2), or 0 where none is set; engine_default_threads
 * calls it with /proc/self/cgroup and /sys/fs/cgroup. Units: CPUs. */
double threads_cgroup_quota(const char *proc_cgroup, const char *mount);

#endif
