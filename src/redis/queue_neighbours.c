#include "redis/queue_neighbours.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"

void queue_meet_neighbours(struct queue *queue)
{
    char boot[40] = "";
    struct stat space;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    bool known = file && fscanf(file, "%39s", boot) == 1 && stat("/proc/self/ns/pid", &space) == 0;
    if (file) { fclose(file); }
    if (known) {
        snprintf(queue->neighbours->pid_space, sizeof queue->neighbours->pid_space, "%s-%" PRIu64, boot,
                 (uint64_t)space.st_ino);
    }
    queue->neighbours->looks = true;
}

const char *queue_gone(const struct queue *queue, unsigned *at)
{
    const struct queue_neighbours *neighbours = queue->neighbours;
    unsigned known = neighbours->count < GONE_MAX ? neighbours->count : GONE_MAX;
    return *at < known && clock_now_ns() < neighbours->until_ns ? neighbours->gone[(*at)++].name : NULL;
}

static bool is_known_gone(const struct queue *queue, const char *name)
{
    unsigned at = 0;
    for (const char *known; (known = queue_gone(queue, &at)) != NULL;) {
        if (strcmp(known, name) == 0) { return true; }
    }
    return false;
}

/* False if it exists, or in doubt. Compares the host's name, too, because a machine may have been cloned while it ran.
 */
static bool process_is_gone(const char *name)
{
    char host[QUEUE_HOST_MAX + 1];
    queue_host(host);
    size_t length = strlen(host);
    if (!queue_worker_name_is(name, strlen(name)) || strncmp(name, host, length) != 0 || name[length] != '-') {
        return false;
    }
    char *end;
    long process = strtol(name + length + 1, &end, 10);
    return *end == '-' && process > 0 && process <= INT_MAX && kill((pid_t)process, 0) != 0 && errno == ESRCH;
}

static void on_lease_given_up(void *context, const struct resp_value *reply)
{
    const struct gone *gone = context;
    if (reply && !queue_refused(gone->queue, reply, "DEL") && reply->integer == 1) {
        log_warn("lease_given_up", log_str("queue", gone->queue->options.name), log_str("worker", gone->name),
                 log_str("reason", "its process on this host has ended; what it held is taken over now"));
    }
}

/* Deletes the lease, which nobody else can have: no two workers have the same name. */
static void give_up_lease(struct queue *queue, const char *name)
{
    struct queue_neighbours *neighbours = queue->neighbours;
    struct gone *gone = &neighbours->gone[neighbours->count++ % GONE_MAX];
    char key[QUEUE_KEY_MAX];
    gone->queue = queue;
    snprintf(gone->name, sizeof gone->name, "%s", name);
    neighbours->until_ns = clock_now_ns() + 2 * queue->options.lease_ms * NS_PER_MS;
    queue_command(queue, 2, (const char *const[]){"DEL", queue_key(queue, "alive:", gone->name, key)},
                  on_lease_given_up, gone);
}

/* Checks the neighbours that lua/pulse named. One whose process is gone but whose heartbeat is fresh is checked again
 * later. */
void queue_check_neighbours(struct queue *queue, const char *words)
{
    enum { SILENT_MS = 2000 };
    uint64_t least_ms = queue->options.lease_ms / 2 < SILENT_MS ? queue->options.lease_ms / 2 : SILENT_MS;
    queue->neighbours->looks = false;
    while (*words) {
        char name[QUEUE_WORKER_MAX], *end;
        size_t length = strcspn(words, " ");
        snprintf(name, sizeof name, "%.*s", (int)length, words);
        uint64_t silent_ms = strtoull(words + length, &end, 10);
        words = end + strspn(end, " ");
        if (is_known_gone(queue, name) || !process_is_gone(name)) { continue; }
        if (silent_ms < least_ms) {
            queue->neighbours->looks = true;
        } else {
            give_up_lease(queue, name);
        }
    }
}
