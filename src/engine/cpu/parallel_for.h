/* A team: threads that help another one through a short computation, so that a single small text has more than one
 * core. The thread that computes owns the team meanwhile and publishes its work step by step; a step is some ranges,
 * and whoever is there claims the next one, half of the hands from the end. A helper that comes late or not at all
 * therefore costs nothing: its ranges are done by the others, and nobody waits but for ranges that somebody is at.
 *
 * Helpers only use cores that nothing else of this process computes on: all computations say when they begin and end,
 * and for each one that is on, a helper less may claim. Within a computation a helper spins for a moment between
 * steps; outside of one it sleeps. */
#ifndef ENGINE_TEAM_H
#define ENGINE_TEAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct team;

/* Threads that one computation has at most, the owner included: each more brings less. */
enum { TEAM_HANDS_MAX = 8 };

/* Some ranges of work that may be done in any order, at once. */
struct team_step {
    /* `hand` says who does it: 0 is the owner, 1 up to team_hands - 1 are helpers. A range is done once, on one hand,
     * and a hand does one range at a time. */
    void (*range)(void *context, unsigned hand, unsigned range);
    void *context;
    unsigned ranges; /* at most 65535 */
};

/* Starts the helpers for a process that may keep `threads` cores busy. Owns: the caller ends it with team_close, when
 * nothing computes. Errors: STATUS_NO_MEMORY, STATUS_IO (no thread). */
MUST_CHECK enum status team_open(unsigned threads, struct team **out, struct err *err);

/* Ends the helpers and joins them. NULL is allowed. */
void team_close(struct team *team);

/* The first of so many equal parts that belongs to a range; the first of the next range ends it. */
static inline uint32_t team_range_first(uint32_t parts, unsigned range, unsigned ranges)
{
    return (uint32_t)((uint64_t)parts * range / ranges);
}

/* Threads that may have a part in a step, the owner included. */
unsigned team_hands(const struct team *team);

/* A computation begins. True: it owns the team from now on; false when it does not want to, when another one does, or
 * when no core is left for helpers. Thread: any. */
bool team_enter(struct team *team, bool wants);

/* It ends. `owns` is what team_enter said. */
void team_leave(struct team *team, bool owns);

/* Whether a hand claims ranges from the last one on downwards, as every other one does: so what it does next is beside
 * what it has done, and about the same in the same step of the next computation. */
static inline bool team_goes_down(unsigned hand)
{
    return hand % 2 == 1;
}

/* Does all ranges of a step. What it reads may be written before, and what it writes read behind it, without further
 * ado. Thread: the owner. */
void team_run(struct team *team, const struct team_step *step);

/* The least CPU quota of the process's control groups (either version), or 0 where none is set; engine_default_threads
 * asks it with /proc/self/cgroup and /sys/fs/cgroup. Units: CPUs. */
double threads_cgroup_quota(const char *proc_cgroup, const char *mount);

#endif
