/* Rights: each command that the role sends is asked about with ACL DRYRUN, and what is missing is named. */
#include <stdio.h>
#include <string.h>

#include "cli/doctor.h"
#include "work/request.h"

enum { WORDS_MAX = 16, COMMAND_MAX = 1024 };

/* Writes the command with the queue's keys in it, `stream` for @requests*. */
static void spell(const struct session *session, const char *command, const char *stream, char out[COMMAND_MAX])
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

/* What Redis says of the command: STATUS_OK and "" when the user may, STATUS_OK and its words when not. */
static enum status try_dry(struct doctor *doctor, const char *user, const char *spelled, char answer[256],
                           struct err *err)
{
    char copy[COMMAND_MAX];
    const char *words[WORDS_MAX] = {"ACL", "DRYRUN", user};
    size_t count = 3;
    snprintf(copy, sizeof copy, "%s", spelled);
    for (char *save, *word = strtok_r(copy, " ", &save); word != NULL && count < WORDS_MAX;
         word = strtok_r(NULL, " ", &save))
        words[count++] = word;
    const struct resp_value *reply;
    TRY(session_ask(&doctor->session, count, words, &reply, err));
    snprintf(answer, 256, "%s", reply->type == RESP_STATUS ? "" : session_text(reply));
    return STATUS_OK;
}

static enum status who_am_i(struct doctor *doctor, char user[256], struct err *err)
{
    const struct resp_value *reply;
    if (doctor->user == NULL)
        TRY(SESSION_ASK(&doctor->session, &reply, err, "ACL", "WHOAMI"));
    snprintf(user, 256, "%s", doctor->user != NULL ? doctor->user : session_text(reply));
    return STATUS_OK;
}

static enum status try_right(struct doctor *doctor, const char *user, const char *command, unsigned *missing,
                             struct err *err)
{
    size_t variants = strstr(command, "@requests*") == NULL ? 1 : CLASS_COUNT;
    for (size_t i = 0; i < variants; i++) {
        char spelled[COMMAND_MAX], answer[256];
        spell(&doctor->session, command, class_streams[i], spelled);
        TRY(try_dry(doctor, user, spelled, answer, err));
        if (answer[0] == '\0')
            continue;
        doctor_say(doctor, FINDING_FAIL, "rights", "%s may not %s: %s", user, spelled, answer);
        (*missing)++;
    }
    return STATUS_OK;
}

/* Whether somebody without a login gets in: then nobody's rights matter. */
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
        doctor_say(doctor, FINDING_OK, "strangers", "who has no login does not get at the queue");
    } else if (status) {
        doctor_say(doctor, FINDING_WARN, "strangers", "cannot tell whether a login is needed: %s", err.message);
    } else {
        doctor_say(
            doctor, FINDING_FAIL, "strangers",
            "Redis lets everybody in who reaches it, because its user default is on and has no password: turn it "
            "off and give each role a login (config/make-users.sh)");
    }
}

void doctor_rights(struct doctor *doctor)
{
    static const char *const names[] = {
        [ROLE_WORKER] = "worker", [ROLE_PRODUCER] = "producer", [ROLE_OPERATOR] = "operator"};
    char user[256];
    struct err err;
    size_t count;
    unsigned missing = 0;
    const struct right *table = rights_table(&count);
    check_strangers(doctor);
    enum status status = who_am_i(doctor, user, &err);
    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        if ((table[i].roles & doctor->role) != 0)
            status = try_right(doctor, user, table[i].command, &missing, &err);
    if (status == STATUS_DENIED)
        doctor_say(doctor, FINDING_WARN, "rights",
                   "cannot tell, because this login may not ask (ACL WHOAMI, ACL DRYRUN): let an operator ask, with "
                   "--user and --role");
    else if (status != STATUS_OK)
        doctor_say(doctor, FINDING_FAIL, "rights", "%s", err.message);
    else if (missing == 0)
        doctor_say(doctor, FINDING_OK, "rights", "%s has every right of a %s on queue %s", user, names[doctor->role],
                   doctor->session.queue);
}
