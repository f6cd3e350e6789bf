/* The Redis server: version, memory, clock; and which durability tier it gives. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/doctor.h"

/* Releases in which known holes of the Lua engine are closed (CVE-2025-49844 and before), by branch. Debian 12 keeps
 * 7.0.15 and closes them there; the branch itself got no release. */
static const struct {
    unsigned major, minor, patch;
} floors[] = {{7, 0, 15}, {7, 2, 11}, {7, 4, 6}, {8, 0, 4}, {8, 2, 2}};

static void check_version(struct doctor *doctor)
{
    char version[64];
    unsigned major = 0, minor = 0, patch = 0;
    doctor_info(doctor, "redis_version", version);
    if (sscanf(version, "%u.%u.%u", &major, &minor, &patch) < 2 || major < 7) {
        doctor_say(doctor, FINDING_FAIL, "version", "Redis %s: 7.0 or later is needed", version);
        return;
    }
    for (size_t i = 0; i < sizeof floors / sizeof floors[0]; i++)
        if (floors[i].major == major && floors[i].minor == minor && patch < floors[i].patch) {
            doctor_say(doctor, FINDING_WARN, "version", "Redis %s has known security holes; use %u.%u.%u or later",
                       version, major, minor, floors[i].patch);
            return;
        }
    if (major == 7 && minor == 0)
        doctor_say(
            doctor, FINDING_OK, "version",
            "Redis %s; on Debian 12 the package must be 5:7.0.15-1~deb12u10 or later, which cannot be seen from here",
            version);
    else
        doctor_say(doctor, FINDING_OK, "version", "Redis %s", version);
}

static void check_memory(struct doctor *doctor)
{
    char policy[64], most[64], used[64];
    doctor_info(doctor, "maxmemory_policy", policy);
    if (strcmp(policy, "noeviction") == 0)
        doctor_say(doctor, FINDING_OK, "eviction", "maxmemory-policy is noeviction");
    else
        doctor_say(doctor, FINDING_FAIL, "eviction",
                   "maxmemory-policy is %s: Redis may throw requests and replies away; set noeviction", policy);
    double limit = atof(doctor_info(doctor, "maxmemory", most)), now = atof(doctor_info(doctor, "used_memory", used));
    if (limit <= 0)
        doctor_say(doctor, FINDING_WARN, "memory",
                   "maxmemory is not set: Redis grows until the system ends it, and workers cannot stop in time");
    else
        doctor_say(doctor, now > 0.85 * limit ? FINDING_WARN : FINDING_OK, "memory",
                   "%.0f %% of maxmemory in use; above 85 %% workers slow down", 100 * now / limit);
}

static void check_clock(struct doctor *doctor)
{
    enum { ALLOWED_MS = 2000 };
    long long skew_ms = (long long)clock_unix_ms() - (long long)doctor->session.redis_ms;
    bool far = llabs(skew_ms) > ALLOWED_MS;
    doctor_say(doctor, far ? FINDING_WARN : FINDING_OK, "clock",
               far ? "this host's clock is %lld ms ahead of Redis', by which deadlines and delays go"
                   : "this host's clock and Redis' differ by %lld ms",
               skew_ms);
}

void doctor_server(struct doctor *doctor)
{
    check_version(doctor);
    check_memory(doctor);
    check_clock(doctor);
}

/* A value of CONFIG GET; "" when we may not ask. */
static void read_setting(struct doctor *doctor, const char *name, char value[64])
{
    const struct resp_value *reply;
    struct err err;
    value[0] = '\0';
    if (SESSION_ASK(&doctor->session, &reply, &err, "CONFIG", "GET", name) == STATUS_OK && reply->type == RESP_ARRAY &&
        reply->count == 2)
        snprintf(value, 64, "%s", session_text(&reply->items[1]));
}

/* What a start after a crash does with an append-only file whose end is torn. Source: valkey-io/valkey#4342. */
static void check_recovery(struct doctor *doctor)
{
    char truncates[64];
    read_setting(doctor, "aof-load-truncated", truncates);
    if (strcmp(truncates, "yes") == 0)
        doctor_say(
            doctor, FINDING_WARN, "recovery",
            "aof-load-truncated yes: after a crash in the middle of a transaction, what Redis confirms from then on "
            "may be lost with the next crash; set no, and mend the file before a start (config/mend-aof.sh)");
    else if (truncates[0] != '\0')
        doctor_say(doctor, FINDING_OK, "recovery",
                   "aof-load-truncated no: a torn append-only file is mended before a start, by config/mend-aof.sh");
}

void doctor_durability(struct doctor *doctor)
{
    char aof[64], fsync[64], replicas[64];
    bool appends = strcmp(doctor_info(doctor, "aof_enabled", aof), "1") == 0;
    bool replicated = atoi(doctor_info(doctor, "connected_slaves", replicas)) > 0;
    read_setting(doctor, "appendfsync", fsync);
    if (!appends)
        doctor_say(doctor, FINDING_WARN, "durability",
                   "tier T0: no append-only file, so that a crash of Redis loses all since its last snapshot");
    else if (fsync[0] == '\0')
        doctor_say(doctor, FINDING_WARN, "durability",
                   "tier T1 at least: there is an append-only file, but this user may not ask for appendfsync");
    else if (strcmp(fsync, "always") != 0)
        doctor_say(doctor, FINDING_WARN, "durability",
                   "tier T1: appendfsync %s, so that a power cut loses the last seconds; always loses nothing", fsync);
    else if (replicated)
        doctor_say(doctor, FINDING_OK, "durability",
                   "tier T3: appendfsync always, and %s replicas for producers that WAIT", replicas);
    else
        doctor_say(doctor, FINDING_OK, "durability",
                   "tier T2: appendfsync always; the loss of this machine's disk loses all");
    if (appends)
        check_recovery(doctor);
}
