/* Liveness: checks whether a daemon of this machine is alive, by its own event loop. It reads no configuration and does
 * not ask Redis, so neither an outage nor another worker makes a supervisor end the daemon. Readiness is `workers
 * check`. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "cli/command.h"
#include "daemon/loop.h"
#include "operator/heartbeats.h"

/* The state of several processes: how many are alive, and why the last dead one is dead. */
struct look {
    size_t turn;
    struct err why;
};

static bool is_number(const char *text)
{
    return text[0] != '\0' && strlen(text) <= 10 && strspn(text, "0123456789") == strlen(text);
}

static void look_at(struct look *look, const char *process, bool named)
{
    uint64_t ago_ms;
    struct err err;
    enum status status = loop_turned((pid_t)strtol(process, NULL, 10), &ago_ms, &err);
    if (!status && ago_ms <= HEARTBEAT_FRESH_MS) {
        look->turn++;
    } else if (!status) {
        (void)err_set(&look->why, STATUS_UNAVAILABLE, "process %s stands still for %" PRIu64 " ms", process, ago_ms);
    } else if (named) {
        (void)err_set(&look->why, STATUS_UNAVAILABLE, "%s", err.message);
    }
}

static enum status look_at_all(struct look *look, struct err *err)
{
    DIR *processes = opendir("/proc");
    if (!processes) { return err_set_errno(err, "cannot read /proc"); }
    for (struct dirent *entry; (entry = readdir(processes)) != NULL;) {
        if (is_number(entry->d_name)) { look_at(look, entry->d_name, false); }
    }
    closedir(processes);
    return STATUS_OK;
}

static int run_live(struct invocation *invocation)
{
    struct look look = {0};
    enum status status = STATUS_OK;
    (void)err_set(&look.why, STATUS_UNAVAILABLE, "no daemon of this user serves on this machine");
    for (size_t i = 0; i < invocation->operand_count; i++) {
        if (!is_number(invocation->operands[i])) {
            fprintf(stderr, "sluice live: \"%.80s\" is not the id of a process\n", invocation->operands[i]);
            return EX_USAGE;
        }
        look_at(&look, invocation->operands[i], true);
    }
    if (invocation->operand_count == 0) { status = look_at_all(&look, &look.why); }
    if (status || look.turn == 0 || look.turn < invocation->operand_count) {
        return print_error(invocation, &look.why);
    }
    printf("%zu live\n", look.turn);
    return EX_OK;
}

const struct subcommand command_live = {
    .name = "live",
    .operands = "[PROCESS...]",
    .summary = "Liveness: check that a daemon of this machine turns, without asking Redis",
    .explanation =
        "Exit 0 when the event loop of a daemon that we may look at (this user's; in a container: the one there)\n"
        "has turned within 10 s; of each PROCESS, where ids of processes are given. Reads no configuration.\n"
        "Whether work is done, which needs Redis, is sluice workers check: readiness.",
    .run = run_live,
};
