/* Threads claim chunks through one atomic word: the step's number, and the first and the end of the remaining chunks. A
 * claim compares the step's number too, so a helper that has seen an older step gets nothing; and the step is read only
 * after the claim, when it can no longer change until all its chunks are done. */
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
#include "base/file.h"
#include "engine/engine.h"

enum {
    SPIN_NS = 100000,    /* a helper that has found no chunk for this long goes to sleep */
    SPINS_A_LOOK = 32,   /* between two looks at the clock */
    SPINS_A_YIELD = 4096 /* of an owner waiting for a helper that may have lost its core */
};

enum { CHUNK_BITS = 16, CHUNKS_MAX = (1 << CHUNK_BITS) - 1, LINE = 64 };

struct helper {
    struct parallel_for *parallel;
    unsigned thread;
    pthread_t handle;
};

struct parallel_for {
    unsigned cores, threads;
    atomic_uint computing; /* computations under way */
    atomic_bool owned;

    _Alignas(LINE) atomic_uint_fast64_t ticket; /* the step's number; the end and the first of the chunks left */
    struct parallel_step step;
    uint32_t number;
    _Alignas(LINE) atomic_uint done; /* chunks done by helpers */

    _Alignas(LINE) pthread_mutex_t lock; /* for what follows; `asleep` is also read without it */
    pthread_cond_t called, settled;
    uint64_t calls;
    atomic_uint asleep; /* helpers that wait for a call */
    bool closing;

    unsigned running;
    struct helper helpers[PARALLEL_THREADS_MAX];
};

static inline void relax_core(void)
{
#ifdef SLUICE_X86
    __builtin_ia32_pause();
#endif
}

/* True if the computations under way leave a core for this helper. */
static bool has_core(const struct parallel_for *parallel, unsigned thread)
{
    return thread + atomic_load_explicit(&parallel->computing, memory_order_relaxed) <= parallel->cores;
}

static bool claim_chunk(struct parallel_for *parallel, unsigned thread, unsigned *chunk)
{
    uint_fast64_t ticket = atomic_load_explicit(&parallel->ticket, memory_order_relaxed);
    for (;;) {
        unsigned first = ticket & CHUNKS_MAX, end = ticket >> CHUNK_BITS & CHUNKS_MAX;
        if (first >= end) { return false; }
        bool down = parallel_for_goes_down(thread);
        uint_fast64_t rest = down ? ticket - (1u << CHUNK_BITS) : ticket + 1;
        *chunk = down ? end - 1 : first;
        if (atomic_compare_exchange_weak_explicit(&parallel->ticket, &ticket, rest, memory_order_acquire,
                                                  memory_order_relaxed)) {
            return true;
        }
    }
}

/* ---- helpers ---- */

/* Helps until the computation ends, another computation needs this core, or there has been no chunk for a while. */
static void help_step(struct parallel_for *parallel, unsigned thread)
{
    uint64_t since = clock_now_ns();
    unsigned chunk, spins = 0;
    while (atomic_load_explicit(&parallel->owned, memory_order_relaxed) && has_core(parallel, thread)) {
        if (claim_chunk(parallel, thread, &chunk)) {
            parallel->step.chunk(parallel->step.context, thread, chunk);
            atomic_fetch_add_explicit(&parallel->done, 1, memory_order_release);
            spins = 0;
            since = clock_now_ns();
            continue;
        }
        relax_core();
        if (++spins % SPINS_A_LOOK == 0 && clock_now_ns() - since > SPIN_NS) { return; }
    }
}

static void *helper_main(void *argument)
{
    struct helper *helper = argument;
    struct parallel_for *parallel = helper->parallel;
    uint64_t seen = 0;
    char name[16];
    snprintf(name, sizeof name, "helper-%u", helper->thread % 1000);
    pthread_setname_np(pthread_self(), name);
    pthread_mutex_lock(&parallel->lock);
    for (;;) {
        atomic_fetch_add(&parallel->asleep, 1);
        pthread_cond_signal(&parallel->settled);
        while (parallel->calls == seen && !parallel->closing) { pthread_cond_wait(&parallel->called, &parallel->lock); }
        if (parallel->closing) { break; }
        seen = parallel->calls;
        pthread_mutex_unlock(&parallel->lock);
        help_step(parallel, helper->thread);
        pthread_mutex_lock(&parallel->lock);
    }
    pthread_mutex_unlock(&parallel->lock);
    return NULL;
}

/* A helper that is about to fall asleep may miss this; the next step calls again. */
static void call_helpers(struct parallel_for *parallel)
{
    if (atomic_load_explicit(&parallel->asleep, memory_order_relaxed) == 0 || !has_core(parallel, 1)) { return; }
    pthread_mutex_lock(&parallel->lock);
    atomic_store(&parallel->asleep, 0);
    parallel->calls++;
    pthread_cond_broadcast(&parallel->called);
    pthread_mutex_unlock(&parallel->lock);
}

/* ---- opening ---- */

/* Starts the helpers with signals blocked, which are for other threads. When this returns, the helpers exist and sleep.
 */
static int start_helpers(struct parallel_for *parallel)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int failed = 0;
    for (unsigned thread = 1; thread < parallel->threads && failed == 0; thread++) {
        struct helper *helper = &parallel->helpers[parallel->running];
        *helper = (struct helper){.parallel = parallel, .thread = thread};
        failed = pthread_create(&helper->handle, NULL, helper_main, helper);
        if (failed != 0) { break; }
        parallel->running++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_mutex_lock(&parallel->lock);
    while (atomic_load(&parallel->asleep) < parallel->running) {
        pthread_cond_wait(&parallel->settled, &parallel->lock);
    }
    pthread_mutex_unlock(&parallel->lock);
    return failed;
}

enum status parallel_for_open(unsigned cores, struct parallel_for **out, struct err *err)
{
    size_t bytes = (sizeof(struct parallel_for) + LINE - 1) / LINE * LINE;
    struct parallel_for *parallel = aligned_alloc(LINE, bytes);
    if (!parallel) { return err_set(err, STATUS_NO_MEMORY, "no memory for helpers of %u cores", cores); }
    memset(parallel, 0, bytes);
    parallel->cores = cores;
    parallel->threads = cores < PARALLEL_THREADS_MAX ? cores : PARALLEL_THREADS_MAX;
    pthread_mutex_init(&parallel->lock, NULL);
    pthread_cond_init(&parallel->called, NULL);
    pthread_cond_init(&parallel->settled, NULL);
    int failed = start_helpers(parallel);
    if (failed != 0) {
        parallel_for_close(parallel);
        return err_set(err, STATUS_IO, "cannot start a helper thread: %s", strerror(failed));
    }
    *out = parallel;
    return STATUS_OK;
}

void parallel_for_close(struct parallel_for *parallel)
{
    if (!parallel) { return; }
    pthread_mutex_lock(&parallel->lock);
    parallel->closing = true;
    pthread_cond_broadcast(&parallel->called);
    pthread_mutex_unlock(&parallel->lock);
    for (unsigned i = 0; i < parallel->running; i++) { pthread_join(parallel->helpers[i].handle, NULL); }
    pthread_cond_destroy(&parallel->called);
    pthread_cond_destroy(&parallel->settled);
    pthread_mutex_destroy(&parallel->lock);
    free(parallel);
}

unsigned parallel_for_threads(const struct parallel_for *parallel)
{
    return parallel->threads;
}

/* ---- computations ---- */

bool parallel_for_enter(struct parallel_for *parallel, bool wants)
{
    bool alone = atomic_fetch_add(&parallel->computing, 1) + 1 < parallel->cores;
    if (!wants || !alone || atomic_exchange_explicit(&parallel->owned, true, memory_order_acquire)) { return false; }
    call_helpers(parallel);
    return true;
}

void parallel_for_leave(struct parallel_for *parallel, bool owns)
{
    if (owns) { atomic_store_explicit(&parallel->owned, false, memory_order_release); }
    atomic_fetch_sub(&parallel->computing, 1);
}

static void publish_step(struct parallel_for *parallel, const struct parallel_step *step)
{
    parallel->step = *step;
    parallel->number++;
    atomic_store_explicit(&parallel->done, 0, memory_order_relaxed);
    uint_fast64_t ticket = (uint_fast64_t)parallel->number << 2 * CHUNK_BITS | (uint_fast64_t)step->chunks
                                                                                   << CHUNK_BITS;
    atomic_store_explicit(&parallel->ticket, ticket, memory_order_release);
    call_helpers(parallel);
}

void parallel_for_run(struct parallel_for *parallel, const struct parallel_step *step)
{
    assert(step->chunks <= CHUNKS_MAX);
    unsigned chunk, own = 0;
    if (step->chunks == 1) {
        step->chunk(step->context, 0, 0);
        return;
    }
    publish_step(parallel, step);
    for (; claim_chunk(parallel, 0, &chunk); own++) { step->chunk(step->context, 0, chunk); }
    for (unsigned spins = 1; own + atomic_load_explicit(&parallel->done, memory_order_acquire) < step->chunks;
         spins++) {
        relax_core();
        if (spins % SPINS_A_YIELD == 0) { sched_yield(); }
    }
}

/* ---- the number of threads: the affinity mask, bounded by the CPU quota of the control group (version 2: cpu.max up
 * to the root; version 1: cpu.cfs_quota_us / cpu.cfs_period_us) ---- */

static unsigned affinity_threads(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) { return (unsigned)CPU_COUNT(&set); }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (unsigned)online : 1;
}

/* Reads the first line of directory/name into `line`; false when there is none. */
static bool read_line(const char *directory, const char *name, char *line, int size)
{
    char path[FILE_PATH_BYTES];
    if (file_path(directory, name, path, NULL) != STATUS_OK) { return false; }
    FILE *file = fopen(path, "re");
    if (!file) { return false; }
    bool found = fgets(line, size, file);
    fclose(file);
    return found;
}

/* The quota of one group's directory in CPUs, or 0 if it sets none. */
static double group_quota(const char *directory)
{
    char line[128], period_line[128];
    double quota = 0, period = 0;
    if (read_line(directory, "cpu.max", line, sizeof line)) {
        if (sscanf(line, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0) { return quota / period; }
        return 0;
    }
    if (read_line(directory, "cpu.cfs_quota_us", line, sizeof line) &&
        read_line(directory, "cpu.cfs_period_us", period_line, sizeof period_line)) {
        quota = strtod(line, NULL);
        period = strtod(period_line, NULL);
        if (quota > 0 && period > 0) { return quota / period; }
    }
    return 0;
}

/* The least quota of a group and of those above it, up to `root`. */
static double least_quota(const char *root, const char *group, double least)
{
    char directory[4096];
    if (snprintf(directory, sizeof directory, "%s%s", root, group) >= (int)sizeof directory) { return least; }
    size_t root_length = strlen(root);
    for (;;) {
        double quota = group_quota(directory);
        if (quota > 0 && (least == 0 || quota < least)) { least = quota; }
        char *slash = strrchr(directory, '/');
        if (!slash || (size_t)(slash - directory) < root_length) { return least; }
        *slash = '\0';
    }
}

static bool names_cpu(const char *controllers)
{
    size_t length = strlen(controllers);
    for (const char *at = controllers; at < controllers + length; at += strcspn(at, ",") + 1) {
        if (strncmp(at, "cpu", 3) == 0 && (at[3] == ',' || at[3] == '\0')) { return true; }
    }
    return false;
}

double threads_cgroup_quota(const char *proc_cgroup, const char *mount)
{
    char line[4096], v1[4096];
    double least = 0;
    FILE *file = fopen(proc_cgroup, "re");
    if (!file) { return 0; }
    snprintf(v1, sizeof v1, "%s/cpu", mount);
    while (fgets(line, sizeof line, file)) { /* hierarchy:controllers:/group */
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) { continue; }
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        controllers++;
        if (*controllers == '\0') {
            least = least_quota(mount, group, least);
        } else if (names_cpu(controllers)) {
            least = least_quota(v1, group, least);
        }
    }
    fclose(file);
    return least;
}

unsigned engine_default_threads(void)
{
    unsigned threads = affinity_threads();
    double quota = threads_cgroup_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    if (quota > 0 && quota < threads) { threads = quota < 1 ? 1 : (unsigned)quota; }
    return threads;
}
