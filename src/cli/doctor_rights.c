#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/doctor.h"
#include "redis/rights.h"
#include "schedule/request.h"

/* Writes the command with the queue's keys; `stream` replaces @requests*. */
static void spell_command(const struct session *session, const char *command, const char *stream,
                          char out[DOCTOR_COMMAND])
{
    size_t used = 0;
    for (const char *at = command; *at != '\0' && used < DOCTOR_COMMAND - SESSION_KEY;) {
        if (*at != '@') {
            out[used++] = *at++;
            continue;
        }
        size_t length = strcspn(++at, " ");
        char suffix[64], key[SESSION_KEY];
        snprintf(suffix, sizeof suffix, "%.*s", (int)length, at);
        session_key(session, strcmp(suffix, "requests*") == 0 ? stream : suffix, "", key);
        used += (size_t)snprintf(out + used, DOCTOR_COMMAND - used, "%s", key);
        at += length;
    }
    out[used] = '\0';
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
        char spelled[DOCTOR_COMMAND], answer[256];
        spell_command(&doctor->session, command, class_streams[i], spelled);
        TRY(doctor_try(doctor, user, spelled, answer, err));
        lack->asked++;
        lack->missing += answer[0] != '\0';
        if (answer[0] != '\0' && name_missing) {
            doctor_report(doctor, FINDING_FAIL, "rights", "%s may not %s: %s", user, spelled, answer);
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
        doctor_report(doctor, FINDING_OK, "strangers", "who has no login does not get at the queue");
    } else if (status) {
        doctor_report(doctor, FINDING_WARN, "strangers", "cannot tell whether a login is needed: %s", err.message);
    } else {
        doctor_report(
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
    char aof[64], spelled[DOCTOR_COMMAND], answer[256] = "";
    struct err err;
    if (strcmp(doctor_info(doctor, "aof_enabled", aof), "1") != 0) { return; }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0] && answer[0] == '\0'; i++) {
        spell_command(&doctor->session, commands[i], "", spelled);
        if (doctor_try(doctor, "default", spelled, answer, &err) != STATUS_OK) {
            doctor_report(doctor, FINDING_WARN, "replay", "cannot tell whether Redis' user default has all rights: %s",
                          err.message);
            return;
        }
    }
    if (answer[0] == '\0') {
        doctor_report(doctor, FINDING_OK, "replay", "Redis may replay all of its append-only file");
    } else {
        doctor_report(
            doctor, FINDING_FAIL, "replay",
            "a restart of Redis loses replies and brings back finished requests, because it replays its append-only "
            "file with the rights of its user default (%s): let that have all rights and be off, as with "
            "make-users.sh (ACL SETUSER default off ~* &* +@all, and in the ACL file)",
            answer);
    }
}

void doctor_check_rights(struct doctor *doctor)
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
        doctor_report(doctor, FINDING_WARN, "rights",
                      "cannot tell, because this login may not ask (ACL WHOAMI, ACL DRYRUN): let an operator ask, with "
                      "--user and --role");
    } else if (status != STATUS_OK) {
        doctor_report(doctor, FINDING_FAIL, "rights", "%s", err.message);
    } else if (lacks_most(lack)) {
        doctor_report(
            doctor, FINDING_FAIL, "rights",
            "%s may not send %u of the %u commands of %s on queue %s: is it a login of another queue, or of another "
            "role (--role)?",
            user, lack.missing, lack.asked, names[doctor->role], doctor->session.queue);
    } else if (!few) {
        doctor_report(doctor, FINDING_OK, "rights", "%s has every right of %s on queue %s", user, names[doctor->role],
                      doctor->session.queue);
    }
    const char *role = strchr(names[doctor->role], ' ') + 1;
    if (!status && lack.missing > 0 && !doctor->user && !strstr(user, role)) {
        doctor_report(doctor, FINDING_WARN, "rights",
                      "that was about %s, which logged in here; the %s's user: --user sluice-%s", user, role, role);
    }
}
