/* The workers of a queue: lists them, and gives them orders, which they take with their next heartbeat. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/duration.h"
#include "cli/invocation.h"
#include "cli/print.h"
#include "operator/answers.h"
#include "operator/orders.h"
#include "redis/queue_names.h"

struct own {
    bool all, json;
};

#define OWN(name) .key = #name, .offset = offsetof(struct own, name)
static const struct setting own_settings[] = {
    {OWN(all), .type = SETTING_SWITCH, .fallback = "false", .help = "the order is for every worker of the queue"},
    {OWN(json), .type = SETTING_SWITCH, .fallback = "false", .help = "list: a line of JSON for each queue"},
};

static const char *verb_of(const struct invocation *invocation)
{
    return invocation->operand_count == 0 ? "list" : invocation->operands[0];
}

static void print_worker(const struct heartbeat_line *line)
{
    char value[64], age[DURATION_TEXT];
    print_bytes(stdout, line->worker, strlen(line->worker));
    for (size_t i = 0; heartbeat_words[i]; i++) {
        heartbeat_value(line, heartbeat_words[i], value, sizeof value);
        printf(" %s=", heartbeat_words[i]);
        print_bytes(stdout, value, strlen(value));
    }
    for (size_t i = 0; heartbeat_more_words[i]; i++) {
        if (heartbeat_value(line, heartbeat_more_words[i], value, sizeof value)[0] != '\0') {
            printf(" %s=", heartbeat_more_words[i]);
            print_bytes(stdout, value, strlen(value));
        }
    }
    printf(" spoke=%s alive=%s", duration_format(line->age_ms, age), line->alive ? "yes" : "no");
    if (line->command[0] != '\0') {
        fputs(" ordered=", stdout);
        print_bytes(stdout, line->command, strlen(line->command));
    }
    putchar('\n');
}

static enum status list_workers(struct session *session, const struct heartbeats *heartbeats, bool json,
                                struct err *err)
{
    struct pause pause;
    if (json) {
        struct buffer line = {0};
        answer_put_workers(&line, session, heartbeats);
        return print_json(&line, err);
    }
    for (size_t i = 0; i < heartbeats->count; i++) { print_worker(&heartbeats->lines[i]); }
    if (heartbeats->count == 0) { printf("no worker is alive on queue %s\n", session->queue); }
    TRY(counts_read_pause(session, &pause, err));
    if (pause.on) {
        printf("queue %s is paused", session->queue);
        print_pause(stdout, &pause, session->redis_ms);
        putchar('\n');
    }
    return STATUS_OK;
}

/* Checks the health of this host's workers, each by its own heartbeat: neither a long backlog nor another host's worker
 * matters. */
static enum status check_host(const struct session *session, const struct heartbeats *heartbeats, struct err *err)
{
    char host[QUEUE_HOST_MAX + 1];
    queue_host(host);
    size_t length = strlen(host), here = 0;
    for (size_t i = 0; i < heartbeats->count; i++) {
        const struct heartbeat_line *line = &heartbeats->lines[i];
        if (strncmp(line->worker, host, length) != 0 || line->worker[length] != '-') { continue; }
        here += line->alive;
        if (line->alive && line->age_ms > HEARTBEAT_FRESH_MS) {
            return err_set(err, STATUS_UNAVAILABLE, "%s has said nothing for %llu ms", line->worker,
                           (unsigned long long)line->age_ms);
        }
    }
    if (here == 0) {
        return err_set(err, STATUS_UNAVAILABLE, "no worker of %s is alive on queue %s", host, session->queue);
    }
    printf("%zu alive\n", here);
    return STATUS_OK;
}

static enum status order_workers(struct session *session, const struct invocation *invocation,
                                 const struct heartbeats *heartbeats, struct err *err)
{
    const struct own *own = invocation->own;
    for (size_t i = 1; i < invocation->operand_count; i++) {
        if (!heartbeats_alive(heartbeats, invocation->operands[i])) {
            return err_set(err, STATUS_NOT_FOUND, "no worker %s is alive on queue %s (see sluice workers list)",
                           invocation->operands[i], session->queue);
        }
    }
    for (size_t i = 0; i < heartbeats->count; i++) {
        const char *worker = heartbeats->lines[i].worker;
        bool named = own->all && heartbeats->lines[i].alive;
        for (size_t k = 1; k < invocation->operand_count; k++) {
            named |= strcmp(invocation->operands[k], worker) == 0;
        }
        if (!named) { continue; }
        TRY(order_worker(session, worker, invocation->operands[0], err));
        printf("%s: %s\n", worker, invocation->operands[0]);
    }
    return STATUS_OK;
}

static enum status handle_workers(struct session *session, const struct invocation *invocation, struct err *err)
{
    const struct own *own = invocation->own;
    const char *verb = verb_of(invocation);
    struct heartbeats heartbeats;
    enum status status = heartbeats_read(session, &heartbeats, err);
    if (!own->json) { print_heading(session); }
    if (status == STATUS_OK) {
        status = order_is(verb)               ? order_workers(session, invocation, &heartbeats, err)
                 : strcmp(verb, "check") == 0 ? check_host(session, &heartbeats, err)
                                              : list_workers(session, &heartbeats, own->json, err);
    }
    heartbeats_free(&heartbeats);
    return status;
}

static int run_workers(struct invocation *invocation)
{
    const struct own *own = invocation->own;
    const char *verb = verb_of(invocation), *problem = NULL;
    size_t names = invocation->operand_count > 1 ? invocation->operand_count - 1 : 0;
    bool looks = strcmp(verb, "list") == 0 || strcmp(verb, "check") == 0;
    if (!order_is(verb) && !looks) {
        problem = "the first word must be list, check, quiet, resume, drain or stop";
    } else if (own->json && strcmp(verb, "list") != 0) {
        problem = "--json is for list";
    } else if (looks && (names > 0 || own->all)) {
        problem = "list and check take no names";
    } else if (!looks && (names > 0) == own->all) {
        problem = "an order is for the workers that are named, or for all with --all";
    }
    if (problem) {
        fprintf(stderr, "sluice workers: %s\n", problem);
        return EX_USAGE;
    }
    return names > 0 ? invocation_run_one(invocation, handle_workers) : invocation_run(invocation, handle_workers);
}

const struct subcommand command_workers = {
    .name = "workers",
    .bit = FOR_OPERATOR,
    .operands = "list|check|quiet|resume|drain|stop [NAME...]",
    .summary = "List the workers of a queue, check them, give one an order",
    .explanation =
        "list     a line for each worker; one that dies is gone two leases later\n"
        "check    readiness: exit 0 when this host has a living worker and each of them has spoken to Redis\n"
        "         within 10 s; liveness, which does not fail because Redis is down, is sluice live\n"
        "quiet    take nothing more, stay up (as SIGTSTP)      resume   go on (SIGCONT)\n"
        "drain    finish, give the rest back, exit (SIGTERM)   stop     exit at once (a second SIGTERM)\n"
        "An order waits in Redis until the worker takes it, within a second.",
    OWN_OPTIONS(own_settings, struct own),
    .run = run_workers,
};
