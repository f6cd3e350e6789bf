/* sluice doctor: the order of the chapters, how a finding is printed, and the exit code. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "cli/doctor.h"

struct own {
    char *user;
    int role; /* index into roles */
};

static const char *const roles[] = {"worker", "producer", "operator", NULL};

#define OWN(name) .key = #name, .offset = offsetof(struct own, name)
/* clang-format off */
static const struct setting own_settings[] = {
    {OWN(role), .type = SETTING_CHOICE, .fallback = "worker", .choices = roles, .help = "whose rights to check"},
    {OWN(user), .type = SETTING_TEXT, .value = "NAME", .help = "the Redis user whose rights to check [the one that logs in]"},
};
/* clang-format on */

void doctor_say(struct doctor *doctor, enum finding finding, const char *what, const char *format, ...)
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

const char *doctor_info(const struct doctor *doctor, const char *name, char value[64])
{
    size_t length = strlen(name);
    value[0] = '\0';
    for (const char *line = doctor->info.data; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && line[length] == ':') {
            line += length + 1;
            snprintf(value, 64, "%.*s", (int)strcspn(line, "\r\n"), line);
            break;
        }
    }
    return value;
}

static enum status read_info(struct doctor *doctor, struct err *err)
{
    const struct resp_value *reply;
    TRY(SESSION_ASK(&doctor->session, &reply, err, "INFO"));
    buffer_append(&doctor->info, session_text(reply), strlen(session_text(reply)) + 1);
    if (!buffer_ok(&doctor->info))
        return err_set(err, STATUS_NO_MEMORY, "no memory for the answer of INFO");
    return STATUS_OK;
}

/* What cannot be had without Redis ends here; everything else is a finding. */
static enum status reach(struct doctor *doctor, const struct invocation *invocation, struct err *err)
{
    char address[ADDRESS_TEXT];
    enum status status = session_open(&doctor->session, invocation, err);
    if (status == STATUS_OK)
        status = read_info(doctor, err);
    if (status != STATUS_OK)
        doctor_say(doctor, FINDING_FAIL, "redis", "%s", err->message);
    else
        doctor_say(doctor, FINDING_OK, "redis", "reached at %s", address_print(&doctor->session.address, address));
    return status;
}

/* What each queue has of its own, under its own settings. */
static void look_at_queues(struct doctor *doctor, struct config *configs, size_t count)
{
    static void (*const chapters[])(struct doctor *) = {doctor_rights, doctor_queue, doctor_model};
    const struct config *all = doctor->config;
    doctor->session.several = count > 1;
    for (size_t i = 0; i < count; i++) {
        doctor->config = &configs[i];
        doctor->session.queue = configs[i].queue;
        session_heading(&doctor->session);
        for (size_t j = 0; j < sizeof chapters / sizeof chapters[0]; j++) {
            chapters[j](doctor);
        }
    }
    if (count > 1) {
        puts("this host");
    }
    doctor->config = all;
}

static int run(struct invocation *invocation)
{
    const struct own *own = invocation->own;
    struct doctor doctor = {.config = &invocation->config, .role = 1U << own->role, .user = own->user};
    struct config *configs;
    size_t count;
    struct err err = {0};
    if (config_split(&invocation->config, &configs, &count, &err)) {
        return report(invocation, &err);
    }
    enum status status = reach(&doctor, invocation, &err);
    if (!status) {
        doctor_server(&doctor);
        doctor_durability(&doctor);
        look_at_queues(&doctor, configs, count);
    }
    doctor_host(&doctor);
    printf("%u failed, %u warnings\n", doctor.failed, doctor.warned);
    buffer_free(&doctor.info);
    session_close(&doctor.session);
    for (size_t i = 0; i < count; i++) {
        config_free(&configs[i]);
    }
    free(configs);
    if (status != STATUS_OK)
        return status_exit_code(status);
    return doctor.failed > 0 ? EX_CONFIG : EX_OK;
}

const struct subcommand command_doctor = {
    .name = "doctor",
    .bit = FOR_DOCTOR,
    .summary = "Check Redis, its settings, the rights of a user, the queue, its model and this host",
    .explanation =
        "A line for each finding: ok, warn, or fail. Exit 78 when something failed, 69 or 77 when Redis cannot be\n"
        "reached or refuses the login. Nothing is changed. Where the configuration lists several queues, each is "
        "looked at\n"
        "under its own heading and with its own model, or the one that --queue names.",
    .own = own_settings,
    .own_count = sizeof own_settings / sizeof own_settings[0],
    .own_size = sizeof(struct own),
    .run = run,
};
