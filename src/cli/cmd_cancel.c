/* Cancels requests as any producer can, with an entry in the control stream; finds requests by their own ids with a
 * search. */
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "cli/invocation.h"
#include "operator/own_id.h"
#include "schedule/request.h"

static enum status cancel_requests(struct session *session, const struct invocation *invocation, struct err *err)
{
    size_t missing = 0;
    for (size_t i = 0; i < invocation->operand_count; i++) {
        const char *id = invocation->operands[i];
        struct own_id_found found;
        TRY(own_id_cancel(session, id, OWN_ID_SEARCH, &found, err));
        for (size_t n = 0; n < found.count; n++) {
            bool named = strcmp(found.names[n], id) == 0;
            printf("%s%s%s: asked to cancel\n", id, named ? "" : ", which is ", named ? "" : found.names[n]);
        }
        if (found.more) {
            printf("%s: not all unfinished requests were searched, because there are too many\n", id);
        } else if (found.count == 0) {
            printf("%s: no unfinished request has this id\n", id);
        }
        missing += found.count == 0;
    }
    if (missing == 0) { return STATUS_OK; }
    return err_set(err, STATUS_UNAVAILABLE, "%zu of %zu were not found in queue %s", missing, invocation->operand_count,
                   session->queue);
}

static int run_cancel(struct invocation *invocation)
{
    if (invocation->operand_count == 0) {
        fprintf(stderr, "sluice cancel: needs the ID of a request: its own `id`, or what XADD answered, with high: or "
                        "low: before it for those streams\n");
        return EX_USAGE;
    }
    for (size_t i = 0; i < invocation->operand_count; i++) {
        enum request_class class;
        struct entry_id id;
        const char *text = invocation->operands[i];
        if (!request_name_parse(text, strlen(text), &class, &id) && !request_id_usable(text, strlen(text))) {
            fprintf(stderr,
                    "sluice cancel: \"%.80s\" is neither a request's name, such as 1795252518106-0 or "
                    "high:1795252518106-0, nor an id that it could have\n",
                    text);
            return EX_USAGE;
        }
    }
    return invocation_run_one(invocation, cancel_requests);
}

const struct subcommand command_cancel = {
    .name = "cancel",
    .bit = FOR_OPERATOR,
    .operands = "ID...",
    .summary = "Cancel requests that are not finished",
    .explanation =
        "ID is a request's own `id`, or its name: what XADD (or sluice submit without --id) answered, with high: or\n"
        "low: before it for requests of those classes; it stays the same through delays and retries. A worker does\n"
        "it within a moment, also while the queue is paused, and the reply then says `cancelled`. A request that is\n"
        "finished, or a name that is unknown, stays as it is. An `id` is searched for among a million unfinished\n"
        "requests at most; all that have it are cancelled, and exit 69 says that none has.",
    .run = run_cancel,
};
