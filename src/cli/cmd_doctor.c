/* sluice doctor: checks everything that a queue depends on, and prints a line for each finding. */
#include <cjson/cJSON.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/clock.h"
#include "cli/invocation.h"
#include "cli/print.h"
#include "config/config.h"
#include "engine/engine.h"
#include "operator/counts.h"
#include "operator/heartbeats.h"
#include "operator/letters.h"
#include "operator/queues.h"
#include "redis/queue_names.h"
#include "redis/resp.h"
#include "redis/rights.h"
#include "schedule/reply.h"
#include "schedule/request.h"

/* The severity of a finding; any FINDING_FAIL makes the exit code one. */
enum finding { FINDING_OK, FINDING_WARN, FINDING_FAIL };

/* The state that the checks share. */
struct doctor {
    struct session session;
    const struct config *config;
    unsigned role;           /* enum role: whose rights to check; 0: not guessed yet */
    const char *user;        /* NULL: the user that we are logged in as */
    struct resp_value *info; /* the answer of INFO */
    struct model *model;     /* of the queue's settings; NULL: it does not open, and no_model says why */
    struct err no_model;
    unsigned warned, failed;
};

/* Prints and counts a finding about `what`. */
PRINTF_LIKE(4, 5)
static void report_finding(struct doctor *doctor, enum finding finding, const char *what, const char *format, ...)
{
    static const char *const words[] = {[FINDING_OK] = "ok", [FINDING_WARN] = "warn", [FINDING_FAIL] = "fail"};
    doctor->warned += finding == FINDING_WARN;
    doctor->failed += finding == FINDING_FAIL;
    printf("%-4s  %-11s ", words[finding], what);
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

/* A field of INFO; "" if the server does not give it. */
static const char *info_field(const struct doctor *doctor, const char *name, char value[64])
{
    value[0] = '\0';
    resp_info_field(session_text(doctor->info), name, value, 64);
    return value;
}

/* The Redis server: version, memory, clock, and durability tier. */

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
    bool valkey = info_field(doctor, "valkey_version", version)[0] != '\0'; /* it also calls itself Redis 7.2.4 */
    const char *name = valkey ? "Valkey" : "Redis";
    if (!valkey) { info_field(doctor, "redis_version", version); }
    if (sscanf(version, "%u.%u.%u", &is.major, &is.minor, &is.patch) < 2 || is.major < 7) {
        report_finding(doctor, FINDING_FAIL, "version", "Redis %s: 7.0 or later is needed", version);
        return;
    }
    for (const struct release *floor = valkey ? valkey_floors : redis_floors; floor->major; floor++) {
        if (floor->major == is.major && floor->minor == is.minor && is.patch < floor->patch) {
            report_finding(doctor, FINDING_WARN, "version", "%s %s has known security holes; use %u.%u.%u or later",
                           name, version, floor->major, floor->minor, floor->patch);
            return;
        }
    }
    if (!valkey && is.major == 7 && is.minor == 0) {
        report_finding(
            doctor, FINDING_OK, "version",
            "Redis %s; on Debian 12 the package must be 5:7.0.15-1~deb12u10 or later, which cannot be seen from here",
            version);
    } else {
        report_finding(doctor, FINDING_OK, "version", "%s %s", name, version);
    }
}

static void check_memory(struct doctor *doctor)
{
    char policy[64], most[64], used[64];
    info_field(doctor, "maxmemory_policy", policy);
    if (strcmp(policy, "noeviction") == 0) {
        report_finding(doctor, FINDING_OK, "eviction", "maxmemory-policy is noeviction");
    } else {
        report_finding(doctor, FINDING_FAIL, "eviction",
                       "maxmemory-policy is %s: Redis may throw requests and replies away; set noeviction", policy);
    }
    double limit = atof(info_field(doctor, "maxmemory", most)), now = atof(info_field(doctor, "used_memory", used));
    if (limit <= 0) {
        report_finding(doctor, FINDING_WARN, "memory",
                       "maxmemory is not set: Redis grows until the system ends it, and workers cannot stop in time");
    } else {
        report_finding(doctor, now > 0.85 * limit ? FINDING_WARN : FINDING_OK, "memory",
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
        bool aof = strcmp(info_field(doctor, "aof_last_write_status", a), "ok") != 0;
        bool snapshot = strcmp(info_field(doctor, "rdb_last_bgsave_status", b), "ok") != 0;
        advice = aof        ? "it cannot write its append-only file: look at the disk's room and at Redis' log"
                 : snapshot ? "its last snapshot failed: look at the disk's room, the directory and Redis' log"
                            : "look at the disk's room and at Redis' log";
    }
    report_finding(doctor, strstr(err->message, " NOPERM ") ? FINDING_WARN : FINDING_FAIL, "writes", "%s; %s",
                   err->message, advice);
}

static void check_writes(struct doctor *doctor)
{
    char host[64], port[64], role[64];
    struct err err;
    if (strcmp(info_field(doctor, "role", role), "slave") == 0) {
        report_finding(
            doctor, FINDING_FAIL, "writes",
            "this is a replica of %s:%s: workers serve requests only where Redis is master, and most replicas answer "
            "writes with READONLY",
            info_field(doctor, "master_host", host), info_field(doctor, "master_port", port));
    } else if (try_write(doctor, &err) != STATUS_OK) {
        say_refused(doctor, &err);
    } else {
        report_finding(doctor, FINDING_OK, "writes", "Redis takes them");
    }
}

static void check_clock(struct doctor *doctor)
{
    enum { ALLOWED_MS = 2000 };
    long long skew_ms = (long long)clock_unix_ms() - (long long)doctor->session.redis_ms;
    bool far = llabs(skew_ms) > ALLOWED_MS;
    report_finding(doctor, far ? FINDING_WARN : FINDING_OK, "clock",
                   far ? "this host's clock is %lld ms ahead of Redis', by which deadlines and delays go"
                       : "this host's clock and Redis' differ by %lld ms",
                   skew_ms);
}

/* Reads a value by CONFIG GET; "" if we may not ask. */
enum { SETTING_MAX = 256 };

static void read_setting(struct doctor *doctor, const char *name, char value[SETTING_MAX])
{
    const struct resp_value *reply;
    struct err err;
    value[0] = '\0';
    if (SESSION_ASK(&doctor->session, &reply, &err, "CONFIG", "GET", name) == STATUS_OK && reply->type == RESP_ARRAY &&
        reply->count == 2) {
        snprintf(value, SETTING_MAX, "%s", session_text(&reply->items[1]));
    }
}

/* Checks how Redis starts with an append-only file that a crash has torn. Source: valkey-io/valkey#4342. */
static void check_recovery(struct doctor *doctor)
{
    char truncates[SETTING_MAX];
    read_setting(doctor, "aof-load-truncated", truncates);
    if (strcmp(truncates, "yes") == 0) {
        report_finding(
            doctor, FINDING_WARN, "recovery",
            "aof-load-truncated yes: after a crash in the middle of a transaction, what Redis confirms from then on "
            "may be lost with the next crash; set no, and mend the file before a start (mend-aof.sh)");
    } else if (truncates[0] != '\0') {
        report_finding(doctor, FINDING_OK, "recovery",
                       "aof-load-truncated no: a torn append-only file is mended before a start, by mend-aof.sh");
    }
}

static void check_durability(struct doctor *doctor)
{
    char aof[64], fsync[SETTING_MAX], replicas[64];
    bool appends = strcmp(info_field(doctor, "aof_enabled", aof), "1") == 0;
    bool replicated = atoi(info_field(doctor, "connected_slaves", replicas)) > 0;
    read_setting(doctor, "appendfsync", fsync);
    if (!appends) {
        report_finding(doctor, FINDING_WARN, "durability",
                       "tier T0: no append-only file, so that a crash of Redis loses all since its last snapshot");
    } else if (fsync[0] == '\0') {
        report_finding(doctor, FINDING_WARN, "durability",
                       "tier T1 at least: there is an append-only file, but this user may not ask for appendfsync");
    } else if (strcmp(fsync, "always") != 0) {
        report_finding(doctor, FINDING_WARN, "durability",
                       "tier T1: appendfsync %s, so that a power cut loses the last seconds; always loses nothing",
                       fsync);
    } else if (replicated) {
        report_finding(doctor, FINDING_OK, "durability",
                       "tier T3: appendfsync always, and %s replicas for producers that WAIT", replicas);
    } else {
        report_finding(doctor, FINDING_OK, "durability",
                       "tier T2: appendfsync always; the loss of this machine's disk loses all");
    }
    if (appends) { check_recovery(doctor); }
}

/* Rights: asks ACL DRYRUN about each command that the role sends, and names the missing ones. */

enum { WORDS_MAX = 16, COMMAND_MAX = 1024 };

/* Writes the command with the queue's keys; `stream` replaces @requests*. */
static void spell_command(const struct session *session, const char *command, const char *stream, char out[COMMAND_MAX])
{
    size_t used = 0;
    for (const char *at = command; *at != '\0' && used < COMMAND_MAX - SESSION_KEY;) {
        if (*at != '@') {
            out[used++] = *at++;
            continue;
        }
        size_t length = strcspn(++at, " ");
        char suffix[64], key[SESSION_KEY];
        snprintf(suffix, sizeof suffix, "%.*s", (int)length, at);
        session_key(session, strcmp(suffix, "requests*") == 0 ? stream : suffix, "", key);
        used += (size_t)snprintf(out + used, COMMAND_MAX - used, "%s", key);
        at += length;
    }
    out[used] = '\0';
}

/* Asks whether the user may send the command. STATUS_OK with "" means yes, with a text no. */
static enum status try_dry(struct doctor *doctor, const char *user, const char *spelled, char answer[256],
                           struct err *err)
{
    char copy[COMMAND_MAX];
    const char *words[WORDS_MAX] = {"ACL", "DRYRUN", user};
    size_t count = 3;
    snprintf(copy, sizeof copy, "%s", spelled);
    for (char *save, *word = strtok_r(copy, " ", &save); word != NULL && count < WORDS_MAX;
         word = strtok_r(NULL, " ", &save)) {
        words[count++] = word;
    }
    const struct resp_value *reply;
    TRY(session_ask(&doctor->session, count, words, &reply, err));
    snprintf(answer, 256, "%s", reply->type == RESP_STATUS ? "" : session_text(reply));
    return STATUS_OK;
}

/* The number of commands asked about, and of those that may not be sent. */
struct lack {
    unsigned asked, missing;
};

static bool lacks_most(struct lack lack)
{
    return 2 * lack.missing > lack.asked;
}

static enum status try_right(struct doctor *doctor, const char *user, const char *command, bool name_missing,
                             struct lack *lack, struct err *err)
{
    size_t variants = !strstr(command, "@requests*") ? 1 : CLASS_COUNT;
    for (size_t i = 0; i < variants; i++) {
        char spelled[COMMAND_MAX], answer[256];
        spell_command(&doctor->session, command, class_streams[i], spelled);
        TRY(try_dry(doctor, user, spelled, answer, err));
        lack->asked++;
        lack->missing += answer[0] != '\0';
        if (answer[0] != '\0' && name_missing) {
            report_finding(doctor, FINDING_FAIL, "rights", "%s may not %s: %s", user, spelled, answer);
        }
    }
    return STATUS_OK;
}

static enum status try_rights(struct doctor *doctor, const char *user, unsigned role, bool name_missing,
                              struct lack *lack, struct err *err)
{
    size_t count;
    const struct right *table = rights_table(&count);
    *lack = (struct lack){0};
    for (size_t i = 0; i < count; i++) {
        if ((table[i].roles & role) != 0) { TRY(try_right(doctor, user, table[i].command, name_missing, lack, err)); }
    }
    return STATUS_OK;
}

/* Takes the first role, in this order, of which the user may send half the commands or more; a worker if there is none.
 */
static enum status guess_role(struct doctor *doctor, const char *user, struct err *err)
{
    static const unsigned candidates[] = {ROLE_WORKER, ROLE_OPERATOR, ROLE_PRODUCER}; /* most rights first */
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++) {
        struct lack lack;
        TRY(try_rights(doctor, user, candidates[i], false, &lack, err));
        if (!lacks_most(lack)) {
            doctor->role = candidates[i];
            return STATUS_OK;
        }
    }
    doctor->role = ROLE_WORKER;
    return STATUS_OK;
}

/* Checks that Redis needs a login: otherwise rights do not matter. */
static void check_strangers(struct doctor *doctor)
{
    struct address bare = doctor->session.address; /* borrowed */
    bare.user = bare.password = NULL;
    char key[SESSION_KEY];
    const char *const words[] = {"EXISTS", session_key(&doctor->session, "requests", "", key)};
    const struct resp_value *reply;
    struct client *client = NULL;
    struct err err;
    enum status status = client_open(&bare, SESSION_TIMEOUT_MS, &client, &err);
    if (!status) {
        status = client_command(client, 2, words, NULL, &reply, &err);
        client_close(client);
    }
    if (status == STATUS_DENIED) {
        report_finding(doctor, FINDING_OK, "strangers", "who has no login does not get at the queue");
    } else if (status) {
        report_finding(doctor, FINDING_WARN, "strangers", "cannot tell whether a login is needed: %s", err.message);
    } else {
        report_finding(
            doctor, FINDING_FAIL, "strangers",
            "Redis lets everybody in who reaches it, because its user default is on and has no password: turn it "
            "off and give each role a login, as make-users.sh does (docs/redis.md)");
    }
}

/* Redis replays its append-only file with the rights of its user default, even if that user cannot log in, and leaves
 * out transactions that these rights do not allow; a script's writes are a transaction [seen with 7.0.15]. */
static void check_replay(struct doctor *doctor)
{
    static const char *const commands[] = {"HSET @reply:x a b", "XDEL @requests 1-1", "XACK @requests sluice 1-1",
                                           "ZADD @later 1 x"};
    char aof[64], spelled[COMMAND_MAX], answer[256] = "";
    struct err err;
    if (strcmp(info_field(doctor, "aof_enabled", aof), "1") != 0) { return; }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0] && answer[0] == '\0'; i++) {
        spell_command(&doctor->session, commands[i], "", spelled);
        if (try_dry(doctor, "default", spelled, answer, &err) != STATUS_OK) {
            report_finding(doctor, FINDING_WARN, "replay", "cannot tell whether Redis' user default has all rights: %s",
                           err.message);
            return;
        }
    }
    if (answer[0] == '\0') {
        report_finding(doctor, FINDING_OK, "replay", "Redis may replay all of its append-only file");
    } else {
        report_finding(
            doctor, FINDING_FAIL, "replay",
            "a restart of Redis loses replies and brings back finished requests, because it replays its append-only "
            "file with the rights of its user default (%s): let that have all rights and be off, as with "
            "make-users.sh (ACL SETUSER default off ~* &* +@all, and in the ACL file)",
            answer);
    }
}

static void check_rights(struct doctor *doctor)
{
    static const char *const names[] = {
        [ROLE_WORKER] = "a worker", [ROLE_PRODUCER] = "a producer", [ROLE_OPERATOR] = "an operator"};
    char user[256];
    struct err err;
    struct lack lack = {0};
    const struct resp_value *reply = NULL;
    check_strangers(doctor);
    check_replay(doctor);
    enum status status = doctor->user ? STATUS_OK : SESSION_ASK(&doctor->session, &reply, &err, "ACL", "WHOAMI");
    snprintf(user, sizeof user, "%s", doctor->user ? doctor->user : session_text(reply));
    if (!status && doctor->role == 0) { status = guess_role(doctor, user, &err); }
    doctor->role = doctor->role == 0 ? ROLE_WORKER : doctor->role;
    if (!status) { status = try_rights(doctor, user, doctor->role, false, &lack, &err); }
    bool few = lack.missing > 0 && !lacks_most(lack);
    if (!status && few) { status = try_rights(doctor, user, doctor->role, true, &lack, &err); }
    if (status == STATUS_DENIED) {
        report_finding(
            doctor, FINDING_WARN, "rights",
            "cannot tell, because this login may not ask (ACL WHOAMI, ACL DRYRUN): let an operator ask, with "
            "--user and --role");
    } else if (status != STATUS_OK) {
        report_finding(doctor, FINDING_FAIL, "rights", "%s", err.message);
    } else if (lacks_most(lack)) {
        report_finding(
            doctor, FINDING_FAIL, "rights",
            "%s may not send %u of the %u commands of %s on queue %s: is it a login of another queue, or of another "
            "role (--role)?",
            user, lack.missing, lack.asked, names[doctor->role], doctor->session.queue);
    } else if (!few) {
        report_finding(doctor, FINDING_OK, "rights", "%s has every right of %s on queue %s", user, names[doctor->role],
                       doctor->session.queue);
    }
    const char *role = strchr(names[doctor->role], ' ') + 1;
    if (!status && lack.missing > 0 && !doctor->user && !strstr(user, role)) {
        report_finding(doctor, FINDING_WARN, "rights",
                       "that was about %s, which logged in here; the %s's user: --user sluice-%s", user, role, role);
    }
}

/* The queue: the types of its keys, its workers, and its model compared with ours. */

/* If Redis refuses us a command that the role needs, the role's own process fails, too. With --user the role's process
 * has another login than we. */
static void cannot_tell(struct doctor *doctor, const char *what, const char *right, const struct err *err)
{
    size_t count;
    const struct right *table = rights_table(&count);
    bool needed = false;
    for (size_t i = 0; i < count; i++) {
        needed |= (table[i].roles & doctor->role) != 0 && strcmp(table[i].command, right) == 0;
    }
    bool fails = needed && err->status == STATUS_DENIED && !doctor->user;
    report_finding(doctor, fails ? FINDING_FAIL : FINDING_WARN, what, "cannot tell: %s", err->message);
}

static const struct {
    const char *suffix, *type;
} keys[] = {
    {"requests:high", "stream"}, {"requests", "stream"}, {"requests:low", "stream"},
    {"dead", "stream"},          {"later", "zset"},      {"later:data", "hash"},
    {"trouble", "hash"},         {"workers", "hash"},    {"meta", "hash"},
    {"control", "stream"},       {"stats", "hash"},
};

static void check_types(struct doctor *doctor)
{
    char key[SESSION_KEY];
    unsigned wrong = 0;
    struct err err;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const struct resp_value *reply;
        session_key(&doctor->session, keys[i].suffix, "", key);
        if (SESSION_ASK(&doctor->session, &reply, &err, "TYPE", key) != STATUS_OK) {
            cannot_tell(doctor, "keys", "TYPE @requests*", &err);
            return;
        }
        const char *type = session_text(reply);
        if (strcmp(type, "none") == 0 || strcmp(type, keys[i].type) == 0) { continue; }
        report_finding(doctor, FINDING_FAIL, "keys", "%s is a %s and must be a %s: rename it", key, type, keys[i].type);
        wrong++;
    }
    if (wrong == 0) {
        report_finding(doctor, FINDING_OK, "keys", "none of queue %s has a wrong type", doctor->session.queue);
    }
}

/* Redis deletes a key with a TTL, and with a stream all its requests. Only a stranger sets a TTL on these keys. */
static void check_expiry(struct doctor *doctor)
{
    char key[SESSION_KEY];
    unsigned expire = 0;
    struct err err;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        long long left_ms;
        session_key(&doctor->session, keys[i].suffix, "", key);
        if (SESSION_ASK_NUMBER(&doctor->session, &left_ms, &err, "PTTL", key) != STATUS_OK) {
            cannot_tell(doctor, "expiry", "PTTL @requests*", &err);
            return;
        }
        if (left_ms < 0) { continue; }
        report_finding(
            doctor, FINDING_FAIL, "expiry",
            "%s has a TTL: Redis deletes it with all that it holds in %lld s; PERSIST it, and find out who has sent "
            "EXPIRE",
            key, left_ms / 1000);
        expire++;
    }
    if (expire == 0) {
        report_finding(doctor, FINDING_OK, "expiry", "none of queue %s has a TTL", doctor->session.queue);
    }
}

static void check_group(struct doctor *doctor)
{
    char key[SESSION_KEY];
    const struct resp_value *reply;
    struct err err;
    session_key(&doctor->session, "requests", "", key);
    enum status status = SESSION_ASK(&doctor->session, &reply, &err, "XINFO", "GROUPS", key);
    if (reply && resp_is_error(reply, "ERR")) { /* no such key, which has no code of its own */
        report_finding(doctor, FINDING_OK, "group", "no stream yet; the first worker or producer makes it");
    } else if (status != STATUS_OK) {
        cannot_tell(doctor, "group", "XINFO GROUPS @requests*", &err);
    } else if (session_group(reply)) {
        report_finding(doctor, FINDING_OK, "group", "sluice reads %s", key);
    } else {
        report_finding(doctor, FINDING_WARN, "group", "%s has no group sluice; the next worker makes it", key);
    }
}

/* The seconds by which an id is ahead of Redis' clock; 0 if a worker would not act on it. */
static unsigned long long seconds_ahead(const struct doctor *doctor, const struct resp_value *id)
{
    struct entry_id parsed;
    uint64_t now_ms = doctor->session.redis_ms + AHEAD_MS;
    bool ahead = resp_entry_id(id, &parsed) && parsed.ms > now_ms;
    return ahead ? (parsed.ms - doctor->session.redis_ms) / 1000 : 0;
}

/* Reports ids of a class that are ahead of the clock, or that it could not find out. Returns whether it reported
 * anything. */
static bool check_ids_of(struct doctor *doctor, const char *suffix)
{
    char key[SESSION_KEY];
    const struct resp_value *reply;
    struct err err;
    session_key(&doctor->session, suffix, "", key);
    enum status status = SESSION_ASK(&doctor->session, &reply, &err, "XINFO", "STREAM", key);
    unsigned long long stream = status ? 0 : seconds_ahead(doctor, resp_field(reply, "last-generated-id")), group = 0;
    if (!status) { status = SESSION_ASK(&doctor->session, &reply, &err, "XINFO", "GROUPS", key); }
    const struct resp_value *ours = status ? NULL : session_group(reply);
    if (ours) { group = seconds_ahead(doctor, resp_field(ours, "last-delivered-id")); }
    bool none = reply && (resp_is_error(reply, "ERR") || resp_is_error(reply, "WRONGTYPE"));
    if (status && !none) {
        cannot_tell(doctor, "ids", "XINFO STREAM @requests*", &err);
    } else if (stream > 0) {
        report_finding(
            doctor, FINDING_WARN, "ids",
            "those of %s are %llu s ahead of the clock: a producer has sent an entry with an id of its own, and Redis "
            "counts on from it, or refuses XADD; a worker sets the stream back within seconds, so let one run",
            key, stream);
    } else if (group > 0) {
        report_finding(
            doctor, FINDING_WARN, "ids",
            "group sluice of %s is %llu s ahead of the clock, so nobody reads what is added; a worker sets it back "
            "within seconds, so let one run",
            key, group);
    }
    return (status && !none) || stream + group > 0;
}

static void check_workers(struct doctor *doctor)
{
    struct heartbeats heartbeats;
    struct err err;
    enum status status = heartbeats_read(&doctor->session, &heartbeats, &err);
    size_t alive = 0;
    char version[64], first[64] = "", other[64] = "";
    for (size_t i = 0; i < heartbeats.count; i++) {
        if (!heartbeats.lines[i].alive) { continue; }
        heartbeat_value(&heartbeats.lines[i], "version", version, sizeof version);
        if (!version[0]) { strcpy(version, "unknown"); } /* an older worker did not say */
        if (alive++ == 0) {
            strcpy(first, version);
        } else if (strcmp(version, first) != 0) {
            strcpy(other, version);
        }
    }
    heartbeats_free(&heartbeats);
    if (status != STATUS_OK) {
        cannot_tell(doctor, "workers", "HGETALL @workers", &err);
    } else if (other[0]) {
        report_finding(doctor, FINDING_WARN, "workers",
                       "%zu alive, of different versions: %s and %s (`sluice workers list`)", alive, first, other);
    } else if (alive > 0) {
        report_finding(doctor, FINDING_OK, "workers", "%zu alive", alive);
    } else {
        char *unused = invocation_unused(&doctor->session);
        report_finding(doctor, FINDING_WARN, "workers", "0 alive%s%s", unused ? "; " : "", unused ? unused : "");
        free(unused);
    }
}

static void check_pause(struct doctor *doctor)
{
    struct pause pause;
    struct err err;
    if (counts_read_pause(&doctor->session, &pause, &err) != STATUS_OK) {
        cannot_tell(doctor, "pause", "GET @paused", &err);
    } else if (!pause.on) {
        report_finding(doctor, FINDING_OK, "pause", "none");
    } else {
        char *known = NULL;
        size_t length;
        FILE *to = open_memstream(&known, &length);
        if (to) {
            print_pause(to, &pause, doctor->session.redis_ms);
            fclose(to);
        }
        report_finding(doctor, FINDING_WARN, "pause",
                       "the queue is paused, and nobody takes anything%s (sluice resume)", known ? known : "");
        free(known);
    }
}

static void check_dead(struct doctor *doctor)
{
    char key[SESSION_KEY];
    long long number;
    struct err err;
    session_key(&doctor->session, "dead", "", key);
    if (SESSION_ASK_NUMBER(&doctor->session, &number, &err, "XLEN", key) != STATUS_OK) {
        cannot_tell(doctor, "dead", "XLEN @dead", &err);
    } else if (number > 0) {
        report_finding(doctor, FINDING_WARN, "dead", "%lld dead letters (sluice dead list)", number);
    } else {
        report_finding(doctor, FINDING_OK, "dead", "none");
    }
}

static void check_queue(struct doctor *doctor)
{
    check_types(doctor);
    check_expiry(doctor);
    check_group(doctor);
    bool said = false;
    for (int i = 0; i < CLASS_COUNT; i++) { said |= check_ids_of(doctor, class_streams[i]); }
    if (!said) { report_finding(doctor, FINDING_OK, "ids", "none is ahead of Redis' clock"); }
    check_workers(doctor);
    check_pause(doctor);
    check_dead(doctor);
}

/* Streams that producers have made by a mistyped key, or for a mistyped queue: Redis takes their requests, and no
 * worker reads them. */

enum { STRAYS_NAMED = 8, STRAYS_MS = 2000, CURSOR_TEXT = 24 };

/* Returns whether the queue is none of ours, and never had a worker. */
static bool is_unserved(struct doctor *doctor, const struct resp_value *key, const char *name, size_t length,
                        const struct config *configs, size_t count)
{
    const struct resp_value *reply;
    struct err err;
    for (size_t i = 0; i < count; i++) {
        if (strlen(configs[i].queue) == length && memcmp(configs[i].queue, name, length) == 0) { return false; }
    }
    return SESSION_ASK(&doctor->session, &reply, &err, "XINFO", "GROUPS", key->bytes) == STATUS_OK &&
           !session_group(reply);
}

/* Reports a stream if no worker reads it, and returns whether none does. */
static bool check_stray(struct doctor *doctor, const struct resp_value *key, bool named, const struct config *configs,
                        size_t count)
{
    const char *name;
    size_t length = queues_find_name(key, &name), size;
    if (length > 0 && !is_unserved(doctor, key, name, length, configs, count)) { return false; }
    if (length == 0 && strstr(key->bytes, "}:results:")) { return false; }
    char *shown = NULL;
    FILE *to = named ? open_memstream(&shown, &size) : NULL;
    if (!to) { return true; }
    print_bytes(to, key->bytes, key->length);
    fclose(to);
    if (length > 0) {
        report_finding(doctor, FINDING_WARN, "strays", "%s: queue %.*s never had a worker; is its name mistyped?",
                       shown, (int)length, name);
    } else {
        report_finding(
            doctor, FINDING_WARN, "strays",
            "nobody reads %s: the streams of a queue are sluice:{NAME}:requests, with :high or :low after it", shown);
    }
    free(shown);
    return true;
}

/* Whether our login may SCAN. It asks, because Redis logs each refusal. */
static bool may_scan(struct doctor *doctor)
{
    char user[256], answer[256];
    const struct resp_value *reply;
    struct err err;
    if (SESSION_ASK(&doctor->session, &reply, &err, "ACL", "WHOAMI") != STATUS_OK) { return false; }
    snprintf(user, sizeof user, "%s", session_text(reply));
    return try_dry(doctor, user, "SCAN 0", answer, &err) == STATUS_OK && answer[0] == '\0';
}

static void check_strays(struct doctor *doctor, const struct config *configs, size_t count)
{
    char cursor[CURSOR_TEXT] = "0";
    size_t found = 0;
    uint64_t ends_ms = clock_now_ms() + STRAYS_MS;
    if (!may_scan(doctor)) {
        report_finding(doctor, FINDING_OK, "strays",
                       "mistyped keys were not looked for, because this login may not SCAN");
        return;
    }
    do {
        const struct resp_value *reply;
        struct err err;
        enum status status = SESSION_ASK(&doctor->session, &reply, &err, "SCAN", cursor, "MATCH", "*sluice*request*",
                                         "COUNT", "1000", "TYPE", "stream");
        struct resp_value *keys_found = status || reply->count != 2 ? NULL : resp_clone(&reply->items[1]);
        if (!keys_found || !reply->items[0].bytes || reply->items[0].length >= sizeof cursor) {
            report_finding(doctor, FINDING_WARN, "strays", "cannot tell: %s",
                           status ? err.message : "SCAN answered in an unknown shape");
            free(keys_found);
            return;
        }
        memcpy(cursor, reply->items[0].bytes, reply->items[0].length + 1);
        for (size_t i = 0; i < keys_found->count; i++) {
            found += check_stray(doctor, &keys_found->items[i], found < STRAYS_NAMED, configs, count);
        }
        free(keys_found);
    } while (strcmp(cursor, "0") != 0 && clock_now_ms() < ends_ms);
    if (found > STRAYS_NAMED) {
        report_finding(doctor, FINDING_WARN, "strays", "and %zu more such streams", found - STRAYS_NAMED);
    } else if (found == 0) {
        report_finding(doctor, FINDING_OK, "strays", "no stream has a mistyped key%s",
                       strcmp(cursor, "0") != 0 ? ", among the keys seen in two seconds" : "");
    }
}

/* Reads a field of the queue's `meta`, "" for none. If it cannot, reports that about `what`, and returns false. */
static bool read_meta(struct doctor *doctor, const char *what, const char *field, char value[128])
{
    char key[SESSION_KEY];
    const struct resp_value *reply;
    struct err err;
    session_key(&doctor->session, "meta", "", key);
    if (SESSION_ASK(&doctor->session, &reply, &err, "HGET", key, field) != STATUS_OK) {
        cannot_tell(doctor, what, "HGET @meta x", &err);
        return false;
    }
    snprintf(value, 128, "%s", session_text(reply));
    return true;
}

static void check_model(struct doctor *doctor)
{
    char pinned[128], name[128];
    const struct model *model = doctor->model;
    if (!read_meta(doctor, "model", "model_id", pinned) || !read_meta(doctor, "model", "model", name)) { return; }
    if (pinned[0] == '\0') {
        report_finding(doctor, FINDING_OK, "model", "the queue has none yet; the first worker brings its own");
    } else if (!model) {
        report_finding(doctor, FINDING_WARN, "model", "the queue's is %s (%s), and ours cannot be compared: %s", pinned,
                       name[0] != '\0' ? name : "its name is not known", doctor->no_model.message);
    } else if (strcmp(model->id, pinned) == 0) {
        report_finding(doctor, FINDING_OK, "model", "%s (%s) is the queue's", model->name, model->id);
    } else {
        report_finding(doctor, FINDING_FAIL, "model",
                       "the queue belongs to the model %s (%s); %s is %s, and a worker with it will be refused", pinned,
                       name[0] != '\0' ? name : "its name is not known", model->name, model->id);
    }
}

/* Checks whether a worker with our settings may join a queue that is pinned to a precision. */
static void check_precision(struct doctor *doctor)
{
    char pinned[128];
    struct err err;
    const char *ours = precision_name((enum precision)doctor->config->precision);
    if (!read_meta(doctor, "precision", "precision", pinned)) { return; }
    if (pinned[0] == '\0') {
        report_finding(doctor, FINDING_OK, "precision", "the queue takes any");
    } else if (strcmp(pinned, ours) == 0) {
        report_finding(doctor, FINDING_OK, "precision", "%s, to which the queue is pinned", ours);
    } else if (doctor->config->precision == PRECISION_AUTO) {
        report_finding(
            doctor, FINDING_WARN, "precision",
            "the queue is pinned to %s; a worker with precision auto may choose another one and is then refused: set "
            "precision to %s",
            pinned, pinned);
    } else {
        (void)queue_refuse_precision(doctor->session.queue, pinned, ours, &err);
        report_finding(doctor, FINDING_FAIL, "precision", "%s", err.message);
    }
}

/* Limits of Redis that close a connection, compared with the largest reply and entry of a worker here. */

/* Bytes on the wire in addition to a reply's result, or to an entry's texts: an estimate. */
enum { LIMIT_BESIDE = 8 << 10 };

/* The most restrictive of several settings of Redis; 0 bytes: no limit. */
struct limit {
    const char *name;
    double bytes;
};

static void lower_limit(struct limit *limit, const char *name, double bytes)
{
    if (bytes > 0 && (limit->bytes == 0 || bytes < limit->bytes)) { *limit = (struct limit){name, bytes}; }
}

/* Reads the limits on the bytes that Redis takes, and sends, in one piece. False: we may not ask. */
static bool read_limits(struct doctor *doctor, struct limit *takes, struct limit *sends)
{
    char value[SETTING_MAX], most[64];
    double hard = 0;
    read_setting(doctor, "proto-max-bulk-len", value);
    if (value[0] == '\0') { return false; }
    lower_limit(takes, "proto-max-bulk-len", atof(value));
    read_setting(doctor, "client-query-buffer-limit", value);
    lower_limit(takes, "client-query-buffer-limit", atof(value));
    read_setting(doctor, "client-output-buffer-limit", value);
    const char *normal = strstr(value, "normal ");
    if (normal && sscanf(normal, "normal %lf", &hard) == 1) {
        lower_limit(sends, "client-output-buffer-limit normal", hard);
    }
    read_setting(doctor, "maxmemory-clients", value);
    double clients = atof(value), part = strchr(value, '%') ? atof(info_field(doctor, "maxmemory", most)) / 100 : 1;
    lower_limit(takes, "maxmemory-clients", clients * part);
    lower_limit(sends, "maxmemory-clients", clients * part);
    return true;
}

/* The longest result of a request with `max_inputs` texts. */
static double largest_reply(const struct doctor *doctor, enum encoding encoding)
{
    const struct model *model = doctor->model;
    struct row row = {0};
    struct request request = {.task = model->head.labels > 0 ? TASK_CLASSIFY : TASK_EMBED,
                              .head = &model->head,
                              .inputs = true,
                              .rows = &row,
                              .row_count = (uint32_t)doctor->config->max_inputs,
                              .output = {.dims = model->dim, .encoding = encoding}};
    return (double)reply_room(&request);
}

static void check_limits(struct doctor *doctor)
{
    static const double MIB = 1 << 20;
    struct limit takes = {0}, sends = {0};
    if (!read_limits(doctor, &takes, &sends)) {
        report_finding(doctor, FINDING_WARN, "limits", "cannot tell, because this login may not ask (CONFIG GET)");
        return;
    }
    double entry = (double)doctor->config->max_text_bytes;
    bool long_entry = sends.bytes > 0 && entry + LIMIT_BESIDE > sends.bytes, long_reply = false;
    if (long_entry) {
        report_finding(
            doctor, FINDING_WARN, "limits",
            "a request may carry %.1f MiB (max_text_bytes), and Redis sends a worker %.1f MiB at once (%s): what is "
            "longer is "
            "answered too_large",
            entry / MIB, sends.bytes / MIB, sends.name);
    }
    if (!doctor->model) {
        report_finding(doctor, FINDING_WARN, "limits",
                       "Redis takes %.1f MiB at once (%s); how long replies are cannot be told: %s", takes.bytes / MIB,
                       takes.name, doctor->no_model.message);
        return;
    }
    double json = largest_reply(doctor, ENCODING_JSON), f32 = largest_reply(doctor, ENCODING_F32);
    long_reply = takes.bytes > 0 && (json > f32 ? json : f32) + LIMIT_BESIDE > takes.bytes;
    if (long_reply) {
        report_finding(
            doctor, FINDING_WARN, "limits",
            "a reply to %lld texts (max_inputs) may have %.1f MiB as json, %.1f MiB as f32, and Redis takes %.1f MiB "
            "at once "
            "(%s): what is longer is answered too_large",
            (long long)doctor->config->max_inputs, json / MIB, f32 / MIB, takes.bytes / MIB, takes.name);
    } else if (!long_entry) {
        report_finding(
            doctor, FINDING_OK, "limits",
            "the largest reply (%.1f MiB as json, %.1f MiB as f32) and entry (%.1f MiB) pass: Redis takes %.0f MiB "
            "(%s)",
            json / MIB, f32 / MIB, entry / MIB, takes.bytes / MIB, takes.name);
    }
}

/* This host: the backend of a worker here. */

/* Reports the backend that the settings mean here; if "auto" does not mean the GPU, why; and the CPU kernels'
 * instructions. */
static void check_backend(struct doctor *doctor)
{
    char kernels[64];
    const char *setting = doctor->config->backend, *name;
    enum precision precision = (enum precision)doctor->config->precision;
    struct err why = {0}, err;
    if (engine_find(setting, precision, &name, &why, &err) != STATUS_OK) {
        report_finding(doctor, FINDING_FAIL, "backend", "%s: %s", setting, err.message);
    } else if (why.message[0] != '\0') {
        report_finding(doctor, FINDING_OK, "backend", "%s, not cuda: %s", name, why.message);
    } else if (strcmp(setting, "auto") == 0 && strcmp(name, "cpu") == 0) {
        report_finding(doctor, FINDING_OK, "backend", "cpu; this build has no CUDA");
    } else {
        report_finding(doctor, FINDING_OK, "backend", "%s", name);
    }
    report_finding(doctor, FINDING_OK, "kernels", "%s", engine_instruction_set(kernels));
}

struct own {
    char *user;
    int role; /* index into roles: 0, or one more than the bit of enum role */
};

static const char *const roles[] = {"auto", "worker", "producer", "operator", NULL};

#define OWN(name) .key = #name, .offset = offsetof(struct own, name)
/* clang-format off */
static const struct setting own_settings[] = {
    {OWN(role), .type = SETTING_CHOICE, .fallback = "auto", .choices = roles, .help = "whose rights to check; auto: by what the user may do"},
    {OWN(user), .type = SETTING_TEXT, .value = "NAME", .help = "the Redis user whose rights to check [the one that logs in]"},
};
/* clang-format on */

/* Connects and reads INFO. Without them the other checks of Redis are skipped. */
static enum status reach_redis(struct doctor *doctor, const struct invocation *invocation, struct err *err)
{
    char address[ADDRESS_TEXT];
    const struct resp_value *reply;
    enum status status = invocation_open(&doctor->session, invocation, err);
    if (status == STATUS_OK) { status = SESSION_ASK(&doctor->session, &reply, err, "INFO"); }
    if (status == STATUS_OK && !(doctor->info = resp_clone(reply))) {
        status = err_set(err, STATUS_NO_MEMORY, "no memory for the answer of INFO");
    }
    if (status != STATUS_OK) {
        report_finding(doctor, FINDING_FAIL, "redis", "%s", err->message);
    } else {
        report_finding(doctor, FINDING_OK, "redis", "reached at %s", address_print(&doctor->session.address, address));
    }
    return status;
}

/* The checks of each queue, with its own settings. */
static void check_queues(struct doctor *doctor, struct config *configs, size_t count)
{
    static void (*const checks[])(struct doctor *) = {check_rights, check_queue, check_model, check_precision,
                                                      check_limits};
    const struct config *all = doctor->config;
    doctor->session.several = count > 1;
    for (size_t i = 0; i < count; i++) {
        doctor->config = &configs[i];
        doctor->session.queue = configs[i].queue;
        print_heading(&doctor->session);
        if (config_any_model(doctor->config, &doctor->model, &doctor->no_model)) { doctor->model = NULL; }
        for (size_t j = 0; j < sizeof checks / sizeof checks[0]; j++) { checks[j](doctor); }
        model_close(doctor->model);
    }
    if (count > 1) { puts("this host"); }
    doctor->config = all;
}

static int run_doctor(struct invocation *invocation)
{
    const struct own *own = invocation->own;
    struct doctor doctor = {.config = &invocation->config, .role = 1U << own->role >> 1, .user = own->user};
    struct config *configs;
    size_t count;
    struct err err = {0};
    if (config_split(&invocation->config, &configs, &count, &err)) { return print_error(invocation, &err); }
    enum status status = reach_redis(&doctor, invocation, &err);
    if (!status) {
        check_version(&doctor);
        check_memory(&doctor);
        check_writes(&doctor);
        check_clock(&doctor);
        check_durability(&doctor);
        check_strays(&doctor, configs, count);
        check_queues(&doctor, configs, count);
    }
    check_backend(&doctor);
    report_finding(&doctor, FINDING_OK, "libraries", "libevent %s, cJSON %s", event_get_version(), cJSON_Version());
    printf("%u failed, %u warnings\n", doctor.failed, doctor.warned);
    free(doctor.info);
    session_close(&doctor.session);
    for (size_t i = 0; i < count; i++) { config_free(&configs[i]); }
    free(configs);
    if (status != STATUS_OK) { return status_exit_code(status); }
    return doctor.failed > 0 ? EX_CONFIG : EX_OK;
}

const struct subcommand command_doctor = {
    .name = "doctor",
    .bit = FOR_DOCTOR,
    .summary = "Check Redis, its settings, the rights of a user, the queue, its model and this host",
    .explanation =
        "A line for each finding: ok, warn, or fail. Exit 78 when something failed, 69 or 77 when Redis cannot be\n"
        "reached or refuses the login. Nothing is changed. Where the configuration lists several queues, each is\n"
        "looked at under its own heading and with its own model, or the one that --queue names.",
    OWN_OPTIONS(own_settings, struct own),
    .run = run_doctor,
};
