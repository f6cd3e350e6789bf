/* sluice doctor: checks everything that a queue depends on, and prints a line for each finding. */
#include <cjson/cJSON.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "cli/doctor.h"
#include "engine/engine.h"

/* Reports the backend that the settings mean here; if "auto" does not mean the GPU, why; and the CPU kernels'
 * instructions. */
static void check_backend(struct doctor *doctor)
{
    char kernels[64];
    const char *setting = doctor->config->backend, *name;
    enum precision precision = (enum precision)doctor->config->precision;
    struct err why = {0}, err;
    if (engine_find(setting, precision, &name, &why, &err) != STATUS_OK) {
        doctor_report(doctor, FINDING_FAIL, "backend", "%s: %s", setting, err.message);
    } else if (why.message[0] != '\0') {
        doctor_report(doctor, FINDING_OK, "backend", "%s, not cuda: %s", name, why.message);
    } else if (strcmp(setting, "auto") == 0 && strcmp(name, "cpu") == 0) {
        doctor_report(doctor, FINDING_OK, "backend", "cpu; this build has no CUDA");
    } else {
        doctor_report(doctor, FINDING_OK, "backend", "%s", name);
    }
    doctor_report(doctor, FINDING_OK, "kernels", "%s", engine_instruction_set(kernels));
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
        doctor_report(doctor, FINDING_FAIL, "redis", "%s", err->message);
    } else {
        doctor_report(doctor, FINDING_OK, "redis", "reached at %s", address_print(&doctor->session.address, address));
    }
    return status;
}

/* The checks of each queue, with its own settings. */
static void check_queues(struct doctor *doctor, struct config *configs, size_t count)
{
    const struct config *all = doctor->config;
    doctor->session.several = count > 1;
    for (size_t i = 0; i < count; i++) {
        doctor->config = &configs[i];
        doctor->session.queue = configs[i].queue;
        print_heading(&doctor->session);
        if (config_any_model(doctor->config, &doctor->model, &doctor->no_model)) { doctor->model = NULL; }
        doctor_check_rights(doctor);
        doctor_check_queue(doctor);
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
        doctor_check_server(&doctor);
        doctor_check_strays(&doctor, configs, count);
        check_queues(&doctor, configs, count);
    }
    check_backend(&doctor);
    doctor_report(&doctor, FINDING_OK, "libraries", "libevent %s, cJSON %s", event_get_version(), cJSON_Version());
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
