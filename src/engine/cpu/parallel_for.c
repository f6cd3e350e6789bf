/* A step's ranges are claimed by one word: the step's number, and the first and the end of the ranges that are left.
 * Who claims one has compared the step's number as well, so that a helper that looked at an older step goes away
 * empty-handed, and what the step consists of is read behind the claim only: it stays until all ranges are done. */
#include "engine/cpu/parallel_for.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/cpu/gemm_onednn.h"

enum {
    SPIN_NS = 100000,    /* a helper that has found no range for so long goes to sleep */
    SPINS_A_LOOK = 32,   /* between two looks at the clock */
    SPINS_A_YIELD = 4096 /* of an owner that waits for a helper, which may have lost its core */
};

enum { RANGE_BITS = 16, RANGES_MAX = (1 << RANGE_BITS) - 1, LINE = 64 };

struct helper {
    struct team *team;
    unsigned hand;
    pthread_t thread;
};

struct team {
    unsigned threads, hands;
    atomic_uint computing; /* computations that are on */
    atomic_bool owned;

    _Alignas(LINE) atomic_uint_fast64_t ticket; /* the step's number, the end and the first of what is left */
    struct team_step step;
    uint32_t number;
    _Alignas(LINE) atomic_uint done; /* ranges, by helpers */

    _Alignas(LINE) pthread_mutex_t lock; /* of what follows, though `asleep` is looked at without */
    pthread_cond_t called, settled;
    uint64_t calls;
    atomic_uint asleep; /* helpers that nobody has called */
    bool closing;

    unsigned running;
    struct helper helpers[TEAM_HANDS_MAX];
};

static inline void relax(void)
{
#ifdef SLUICE_X86
    __builtin_ia32_pause();
#endif
}

/* Whether there is a core for this hand beside all who compute. */
static bool has_core(const struct team *team, unsigned hand)
{
    return hand + atomic_load_explicit(&team->computing, memory_order_relaxed) <= team->threads;
}

static bool claim(struct team *team, unsigned hand, unsigned *range)
{
    uint_fast64_t ticket = atomic_load_explicit(&team->ticket, memory_order_relaxed);
    for (;;) {
        unsigned first = ticket & RANGES_MAX, end = ticket >> RANGE_BITS & RANGES_MAX;
        if (first >= end)
            return false;
        bool down = team_goes_down(hand);
        uint_fast64_t rest = down ? ticket - (1u << RANGE_BITS) : ticket + 1;
        *range = down ? end - 1 : first;
        if (atomic_compare_exchange_weak_explicit(&team->ticket, &ticket, rest, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    }
}

/* ---- helpers ---- */

/* Helps until the computation ends, its core is wanted or nothing has come for a while. */
static void help(struct team *team, unsigned hand)
{
    uint64_t since = clock_now_ns();
    unsigned range, spins = 0;
    while (atomic_load_explicit(&team->owned, memory_order_relaxed) && has_core(team, hand)) {
        if (claim(team, hand, &range)) {
            team->step.range(team->step.context, hand, range);
            atomic_fetch_add_explicit(&team->done, 1, memory_order_release);
            spins = 0;
            since = clock_now_ns();
            continue;
        }
        relax();
        if (++spins % SPINS_A_LOOK == 0 && clock_now_ns() - since > SPIN_NS)
            return;
    }
}

static void *helper_main(void *argument)
{
    struct helper *helper = argument;
    struct team *team = helper->team;
    uint64_t seen = 0;
    matmul_single_thread();
    pthread_mutex_lock(&team->lock);
    for (;;) {
        atomic_fetch_add(&team->asleep, 1);
        pthread_cond_signal(&team->settled);
        while (team->calls == seen && !team->closing)
            pthread_cond_wait(&team->called, &team->lock);
        if (team->closing)
            break;
        seen = team->calls;
        pthread_mutex_unlock(&team->lock);
        help(team, helper->hand);
        pthread_mutex_lock(&team->lock);
    }
    pthread_mutex_unlock(&team->lock);
    return NULL;
}

/* A helper that is just about to fall asleep may miss this; the next step calls again. */
static void call(struct team *team)
{
    if (atomic_load_explicit(&team->asleep, memory_order_relaxed) == 0 || !has_core(team, 1))
        return;
    pthread_mutex_lock(&team->lock);
    atomic_store(&team->asleep, 0);
    team->calls++;
    pthread_cond_broadcast(&team->called);
    pthread_mutex_unlock(&team->lock);
}

/* ---- opening ---- */

/* Signals are for other threads. Helpers are there, asleep, when this returns. */
static int start(struct team *team)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int failed = 0;
    for (unsigned hand = 1; hand < team->hands && failed == 0; hand++) {
        struct helper *helper = &team->helpers[team->running];
        *helper = (struct helper){.team = team, .hand = hand};
        failed = pthread_create(&helper->thread, NULL, helper_main, helper);
        if (failed != 0)
            break;
        char name[16];
        snprintf(name, sizeof name, "helper-%u", hand % 1000);
        pthread_setname_np(helper->thread, name);
        team->running++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_mutex_lock(&team->lock);
    while (atomic_load(&team->asleep) < team->running)
        pthread_cond_wait(&team->settled, &team->lock);
    pthread_mutex_unlock(&team->lock);
    return failed;
}

enum status team_open(unsigned threads, struct team **out, struct err *err)
{
    size_t bytes = (sizeof(struct team) + LINE - 1) / LINE * LINE;
    struct team *team = aligned_alloc(LINE, bytes);
    if (team == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for a team of %u threads", threads);
    memset(team, 0, bytes);
    team->threads = threads;
    team->hands = threads < TEAM_HANDS_MAX ? threads : TEAM_HANDS_MAX;
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->called, NULL);
    pthread_cond_init(&team->settled, NULL);
    int failed = start(team);
    if (failed != 0) {
        team_close(team);
        return err_set(err, STATUS_IO, "cannot start a helper thread: %s", strerror(failed));
    }
    *out = team;
    return STATUS_OK;
}

void team_close(struct team *team)
{
    if (team == NULL)
        return;
    pthread_mutex_lock(&team->lock);
    team->closing = true;
    pthread_cond_broadcast(&team->called);
    pthread_mutex_unlock(&team->lock);
    for (unsigned i = 0; i < team->running; i++)
        pthread_join(team->helpers[i].thread, NULL);
    pthread_cond_destroy(&team->called);
    pthread_cond_destroy(&team->settled);
    pthread_mutex_destroy(&team->lock);
    free(team);
}

unsigned team_hands(const struct team *team)
{
    return team->hands;
}

/* ---- who computes ---- */

bool team_enter(struct team *team, bool wants)
{
    bool alone = atomic_fetch_add(&team->computing, 1) + 1 < team->threads;
    if (!wants || !alone || atomic_exchange_explicit(&team->owned, true, memory_order_acquire))
        return false;
    call(team);
    return true;
}

void team_leave(struct team *team, bool owns)
{
    if (owns)
        atomic_store_explicit(&team->owned, false, memory_order_release);
    atomic_fetch_sub(&team->computing, 1);
}

static void publish(struct team *team, const struct team_step *step)
{
    team->step = *step;
    team->number++;
    atomic_store_explicit(&team->done, 0, memory_order_relaxed);
    uint_fast64_t ticket = (uint_fast64_t)team->number << 2 * RANGE_BITS | (uint_fast64_t)step->ranges << RANGE_BITS;
    atomic_store_explicit(&team->ticket, ticket, memory_order_release);
    call(team);
}

void team_run(struct team *team, const struct team_step *step)
{
    assert(step->ranges <= RANGES_MAX);
    unsigned range, own = 0;
    if (step->ranges == 1) {
        step->range(step->context, 0, 0);
        return;
    }
    publish(team, step);
    for (; claim(team, 0, &range); own++)
        step->range(step->context, 0, range);
    for (unsigned spins = 1; own + atomic_load_explicit(&team->done, memory_order_acquire) < step->ranges; spins++) {
        relax();
        if (spins % SPINS_A_YIELD == 0)
            sched_yield();
    }
}

/* ---- how many threads: the affinity mask, cut by the CPU quota of the control group ----
 * (version 2: cpu.max on the way up to the root; version 1: cpu.cfs_quota_us over cpu.cfs_period_us) */

static unsigned affinity_threads(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (unsigned)CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (unsigned)online : 1;
}

/* Reads the first line of directory/name into `line`; false when there is none. */
static bool read_line(const char *directory, const char *name, char *line, int size)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path)
        return false;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    bool found = fgets(line, size, file) != NULL;
    fclose(file);
    return found;
}

/* The quota of one group's directory in CPUs, or 0 where it sets none. */
static double group_quota(const char *directory)
{
    char line[128], period_line[128];
    double quota = 0, period = 0;
    if (read_line(directory, "cpu.max", line, sizeof line)) {
        if (sscanf(line, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0)
            return quota / period;
        return 0;
    }
    if (read_line(directory, "cpu.cfs_quota_us", line, sizeof line) &&
        read_line(directory, "cpu.cfs_period_us", period_line, sizeof period_line)) {
        quota = strtod(line, NULL);
        period = strtod(period_line, NULL);
        if (quota > 0 && period > 0)
            return quota / period;
    }
    return 0;
}

/* The least quota of a group and those above it, up to `root` itself. */
static double least_quota(const char *root, const char *group, double least)
{
    char directory[4096];
    if (snprintf(directory, sizeof directory, "%s%s", root, group) >= (int)sizeof directory)
        return least;
    size_t root_length = strlen(root);
    for (;;) {
        double quota = group_quota(directory);
        if (quota > 0 && (least == 0 || quota < least))
            least = quota;
        char *slash = strrchr(directory, '/');
        if (slash == NULL || (size_t)(slash - directory) < root_length)
            return least;
        *slash = '\0';
    }
}

static bool names_cpu(const char *controllers)
{
    size_t length = strlen(controllers);
    for (const char *at = controllers; at < controllers + length; at += strcspn(at, ",") + 1)
        if (strncmp(at, "cpu", 3) == 0 && (at[3] == ',' || at[3] == '\0'))
            return true;
    return false;
}

double threads_cgroup_quota(const char *proc_cgroup, const char *mount)
{
    char line[4096], v1[4096];
    double least = 0;
    FILE *file = fopen(proc_cgroup, "re");
    if (file == NULL)
        return 0;
    snprintf(v1, sizeof v1, "%s/cpu", mount);
    while (fgets(line, sizeof line, file) != NULL) { /* hierarchy:controllers:/group */
        char *controllers = strchr(line, ':');
        char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (group == NULL)
            continue;
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        controllers++;
        if (*controllers == '\0')
            least = least_quota(mount, group, least);
        else if (names_cpu(controllers))
            least = least_quota(v1, group, least);
    }
    fclose(file);
    return least;
}

unsigned engine_default_threads(void)
{
    unsigned threads = affinity_threads();
    double quota = threads_cgroup_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    if (quota > 0 && quota < threads)
        threads = quota < 1 ? 1 : (unsigned)quota;
    return threads;
}
