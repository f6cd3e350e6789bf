/* Prints the reply of one request, or where a request is that has none yet. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "cli/print.h"
#include "cli/session.h"
#include "daemon/config.h"
#include "redis/operator_json.h"
#include "schedule/request.h"

static enum status get(struct session *session, const char *id, struct err *err)
{
    const struct resp_value *reply;
    struct place place;
    TRY(request_find(session, id, &reply, &place, err));
    if (reply) { return json_put_reply(stdout, id, reply, err); }
    json_put_place(stdout, id, &place);
    const char *why =
        place.denied   ? "only an operator's login may ask where it is"
        : place.status ? "it is not finished"
        : request_id_usable(id, strlen(id))
            ? "it is not finished, has expired or was never enqueued; its name, which XADD returned, tells more"
            : "it has ended, and its reply has expired or is under its own id; or it was never enqueued";
    return err_set(err, STATUS_UNAVAILABLE, "no reply for \"%s\" in queue %s: %s", id, session->queue, why);
}

static int run(struct invocation *invocation)
{
    struct err err;
    struct session session;
    if (invocation->operand_count != 1 || strlen(invocation->operands[0]) > 128) {
        fprintf(stderr, "sluice get: needs one ID of at most 128 bytes, the one that XADD or sluice submit printed\n");
        return EX_USAGE;
    }
    if (!session_is_one(invocation)) { return EX_USAGE; }
    enum status status = session_connect(&session, invocation, &err);
    if (status == STATUS_OK) { status = get(&session, invocation->operands[0], &err); }
    session_close(&session);
    return status == STATUS_OK ? EX_OK : print_error(invocation, &err);
}

const struct subcommand command_get = {
    .name = "get",
    .bit = FOR_GET,
    .operands = "ID",
    .summary = "Print the reply of a request as one line of JSON",
    .explanation =
        "Exit 69 when there is no reply (yet). Its status is then queued, running (the line names the worker),\n"
        "later (due_at: Redis' unix ms) or unknown; to an operator, and by the name that XADD returned.",
    .run = run,
};
