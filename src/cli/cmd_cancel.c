/* Cancels requests by name as any producer can: with an entry in the control stream. */
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "cli/session.h"
#include "schedule/request.h"

static enum status body(struct session *session, const struct invocation *invocation, struct err *err)
{
    for (size_t i = 0; i < invocation->operand_count; i++) {
        TRY(request_cancel(session, invocation->operands[i], err));
        printf("%s: asked to cancel\n", invocation->operands[i]);
    }
    return STATUS_OK;
}

static int run(struct invocation *invocation)
{
    if (invocation->operand_count == 0) {
        fprintf(stderr, "sluice cancel: needs the NAME of a request: what XADD answered, with high: or low: before it "
                        "for those streams\n");
        return EX_USAGE;
    }
    for (size_t i = 0; i < invocation->operand_count; i++) {
        enum request_class class;
        struct entry_id id;
        const char *name = invocation->operands[i];
        if (!request_name_parse(name, strlen(name), &class, &id)) {
            fprintf(
                stderr,
                "sluice cancel: \"%.80s\" is not a request's name, such as 1795252518106-0 or high:1795252518106-0\n",
                name);
            return EX_USAGE;
        }
    }
    return session_run_one(invocation, body);
}

const struct subcommand command_cancel = {
    .name = "cancel",
    .bit = FOR_OPERATOR,
    .operands = "NAME...",
    .summary = "Cancel requests that are not finished",
    .explanation =
        "NAME is what XADD (or sluice submit without --id) answered, with high: or low: before it for requests of\n"
        "those classes; it stays the same through delays and retries. A worker does it within a moment, also\n"
        "while the queue is paused, and the reply then says `cancelled`. A request that is finished, or unknown,\n"
        "stays as it is.",
    .run = run,
};
