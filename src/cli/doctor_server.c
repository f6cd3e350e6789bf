#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/doctor.h"

/* Releases in which known holes are closed, by branch: those of Redis' Lua engine (CVE-2025-49844 and before), and of
 * Valkey (CVE-2026-27623, CVE-2026-21863 and before). Debian 12 keeps 7.0.15 and closes them there; that branch of
 * Redis got no release. */
struct release {
    unsigned major, minor, patch;
};
static const struct release redis_floors[] = {{7, 0, 15}, {7, 2, 11}, {7, 4, 6}, {8, 0, 4}, {8, 2, 2}, {0}};
static const struct release valkey_floors[] = {{7, 2, 12}, {8, 0, 7}, {8, 1, 6}, {9, 0, 3}, {0}};

static void check_version(struct doctor *doctor)
{
    char version[64];
    struct release is = {0};
    bool valkey = doctor_info(doctor, "valkey_version", version)[0] != '\0'; /* it also calls itself Redis 7.2.4 */
    const char *name = valkey ? "Valkey" : "Redis";
    if (!valkey) { doctor_info(doctor, "redis_version", version); }
    if (sscanf(version, "%u.%u.%u", &is.major, &is.minor, &is.patch) < 2 || is.major < 7) {
        doctor_report(doctor, FINDING_FAIL, "version", "Redis %s: 7.0 or later is needed", version);
        return;
    }
    for (const struct release *floor = valkey ? valkey_floors : redis_floors; floor->major; floor++) {
        if (floor->major == is.major && floor->minor == is.minor && is.patch < floor->patch) {
            doctor_report(doctor, FINDING_WARN, "version", "%s %s has known security holes; use %u.%u.%u or later",
                          name, version, floor->major, floor->minor, floor->patch);
            return;
        }
    }
    if (!valkey && is.major == 7 && is.minor == 0) {
        doctor_report(
            doctor, FINDING_OK, "version",
            "Redis %s; on Debian 12 the package must be 5:7.0.15-1~deb12u10 or later, which cannot be seen from here",
            version);
    } else {
        doctor_report(doctor, FINDING_OK, "version", "%s %s", name, version);
    }
}

static void check_memory(struct doctor *doctor)
{
    char policy[64], most[64], used[64];
    doctor_info(doctor, "maxmemory_policy", policy);
    if (strcmp(policy, "noeviction") == 0) {
        doctor_report(doctor, FINDING_OK, "eviction", "maxmemory-policy is noeviction");
    } else {
        doctor_report(doctor, FINDING_FAIL, "eviction",
                      "maxmemory-policy is %s: Redis may throw requests and replies away; set noeviction", policy);
    }
    double limit = atof(doctor_info(doctor, "maxmemory", most)), now = atof(doctor_info(doctor, "used_memory", used));
    if (limit <= 0) {
        doctor_report(doctor, FINDING_WARN, "memory",
                      "maxmemory is not set: Redis grows until the system ends it, and workers cannot stop in time");
    } else {
        doctor_report(doctor, now > 0.85 * limit ? FINDING_WARN : FINDING_OK, "memory",
                      "%.0f %% of maxmemory in use; above 85 %% workers slow down", 100 * now / limit);
    }
}

/* Asks for a write that changes nothing, because there is no entry 0-0, but that Redis refuses as it would any other.
 * It uses a connection of its own, because a pause of writes (CLIENT PAUSE) holds up the connection. */
static enum status try_write(struct doctor *doctor, struct err *err)
{
    char key[SESSION_KEY];
    const char *const words[] = {"XADD", session_key(&doctor->session, "requests", "", key), "0-0", "x", "x"};
    const struct resp_value *reply;
    struct client *client = NULL;
    TRY(client_open(&doctor->session.address, SESSION_TIMEOUT_MS, &client, err));
    enum status status = client_command(client, 5, words, NULL, &reply, err);
    if (reply && resp_is_error(reply, "ERR") && strstr(reply->bytes, "0-0")) { status = STATUS_OK; }
    client_close(client);
    return status;
}

/* Reports a refusal with the remedy for the word that Redis begins it with. */
static void say_refused(struct doctor *doctor, const struct err *err)
{
    char a[64], b[64];
    static const struct {
        const char *word, *advice;
    } advices[] = {
        {" OOM ", "producers cannot enqueue until it has room: raise maxmemory, or delete what need not be there"},
        {" NOREPLICAS ",
         "fewer replicas than min-replicas-to-write are connected and up to date: mend them, or lower it"},
        {" READONLY ", "it is a replica: use its master"},
        {" LOADING ", "wait until it has loaded its data"},
        {" BUSY ", "a script runs too long: SCRIPT KILL, or wait"},
        {" MASTERDOWN ", "it is a replica without its master: use the master, or promote it"},
        {" CLUSTERDOWN ", "some slots of the cluster have no node"},
        {" NOPERM ", "this login may not XADD, so it cannot be tried"},
        {"no answer in time", "are writes paused (CLIENT PAUSE, a failover)? They go on after CLIENT UNPAUSE"},
    };
    const char *advice = "workers wait, and producers cannot enqueue";
    for (size_t i = 0; i < sizeof advices / sizeof advices[0]; i++) {
        if (strstr(err->message, advices[i].word)) { advice = advices[i].advice; }
    }
    if (strstr(err->message, " MISCONF ")) {
        bool aof = strcmp(doctor_info(doctor, "aof_last_write_status", a), "ok") != 0;
        bool snapshot = strcmp(doctor_info(doctor, "rdb_last_bgsave_status", b), "ok") != 0;
        advice = aof        ? "it cannot write its append-only file: look at the disk's room and at Redis' log"
                 : snapshot ? "its last snapshot failed: look at the disk's room, the directory and Redis' log"
                            : "look at the disk's room and at Redis' log";
    }
    doctor_report(doctor, strstr(err->message, " NOPERM ") ? FINDING_WARN : FINDING_FAIL, "writes", "%s; %s",
                  err->message, advice);
}

static void check_writes(struct doctor *doctor)
{
    char host[64], port[64], role[64];
    struct err err;
    if (strcmp(doctor_info(doctor, "role", role), "slave") == 0) {
        doctor_report(
            doctor, FINDING_FAIL, "writes",
            "this is a replica of %s:%s: workers serve requests only where Redis is master, and most replicas answer "
            "writes with READONLY",
            doctor_info(doctor, "master_host", host), doctor_info(doctor, "master_port", port));
    } else if (try_write(doctor, &err) != STATUS_OK) {
        say_refused(doctor, &err);
    } else {
        doctor_report(doctor, FINDING_OK, "writes", "Redis takes them");
    }
}

static void check_clock(struct doctor *doctor)
{
    enum { ALLOWED_MS = 2000 };
    long long skew_ms = (long long)clock_unix_ms() - (long long)doctor->session.redis_ms;
    bool far = llabs(skew_ms) > ALLOWED_MS;
    doctor_report(doctor, far ? FINDING_WARN : FINDING_OK, "clock",
                  far ? "this host's clock is %lld ms ahead of Redis', by which deadlines and delays go"
                      : "this host's clock and Redis' differ by %lld ms",
                  skew_ms);
}

/* Checks how Redis starts with an append-only file that a crash has torn. Source: valkey-io/valkey#4342. */
static void check_recovery(struct doctor *doctor)
{
    char truncates[SETTING_MAX];
    doctor_setting(doctor, "aof-load-truncated", truncates);
    if (strcmp(truncates, "yes") == 0) {
        doctor_report(
            doctor, FINDING_WARN, "recovery",
            "aof-load-truncated yes: after a crash in the middle of a transaction, what Redis confirms from then on "
            "may be lost with the next crash; set no, and mend the file before a start (mend-aof.sh)");
    } else if (truncates[0] != '\0') {
        doctor_report(doctor, FINDING_OK, "recovery",
                      "aof-load-truncated no: a torn append-only file is mended before a start, by mend-aof.sh");
    }
}

static void check_durability(struct doctor *doctor)
{
    char aof[64], fsync[SETTING_MAX], replicas[64];
    bool appends = strcmp(doctor_info(doctor, "aof_enabled", aof), "1") == 0;
    bool replicated = atoi(doctor_info(doctor, "connected_slaves", replicas)) > 0;
    doctor_setting(doctor, "appendfsync", fsync);
    if (!appends) {
        doctor_report(doctor, FINDING_WARN, "durability",
                      "tier T0: no append-only file, so that a crash of Redis loses all since its last snapshot");
    } else if (fsync[0] == '\0') {
        doctor_report(doctor, FINDING_WARN, "durability",
                      "tier T1 at least: there is an append-only file, but this user may not ask for appendfsync");
    } else if (strcmp(fsync, "always") != 0) {
        doctor_report(doctor, FINDING_WARN, "durability",
                      "tier T1: appendfsync %s, so that a power cut loses the last seconds; always loses nothing",
                      fsync);
    } else if (replicated) {
        doctor_report(doctor, FINDING_OK, "durability",
                      "tier T3: appendfsync always, and %s replicas for producers that WAIT", replicas);
    } else {
        doctor_report(doctor, FINDING_OK, "durability",
                      "tier T2: appendfsync always; the loss of this machine's disk loses all");
    }
    if (appends) { check_recovery(doctor); }
}

void doctor_check_server(struct doctor *doctor)
{
    check_version(doctor);
    check_memory(doctor);
    check_writes(doctor);
    check_clock(doctor);
    check_durability(doctor);
}
