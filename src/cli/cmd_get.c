/* Prints the reply of one request. */
#include <string.h>
#include <sysexits.h>

#include "cli/command.h"
#include "cli/print.h"
#include "cli/session.h"
#include "daemon/config.h"
#include "redis/client.h"

enum { TIMEOUT_MS = 5000 };

static enum status get(struct client *client, const char *queue, const char *id, struct err *err)
{
    char key[256];
    snprintf(key, sizeof key, "sluice:{%s}:reply:%s", queue, id);
    const char *const command[] = {"HGETALL", key};
    const size_t lengths[] = {7, strlen(key)};
    const struct resp_value *reply;
    enum status status = client_command(client, 2, command, lengths, &reply, err);
    if (status != STATUS_OK) {
        return status;
    }
    if (reply->type != RESP_ARRAY || reply->count == 0) {
        return err_set(err, STATUS_UNAVAILABLE,
                       "no reply for \"%s\" in queue %s: it is not finished, it has expired, or it was never enqueued",
                       id, queue);
    }
    return print_reply(stdout, id, reply, err);
}

static int run(struct invocation *invocation)
{
    const struct config *config = &invocation->config;
    struct err err;
    if (invocation->operand_count != 1 || strlen(invocation->operands[0]) > 128) {
        fprintf(stderr, "sluice get: needs one ID of at most 128 bytes, the one that XADD or sluice submit printed\n");
        return EX_USAGE;
    }
    if (!session_is_one(invocation)) {
        return EX_USAGE;
    }
    struct address address;
    struct client *client = NULL;
    enum status status = config_address(config, &address, &err);
    if (status != STATUS_OK) {
        return report(invocation, &err);
    }
    status = client_open(&address, TIMEOUT_MS, &client, &err);
    if (status == STATUS_OK) {
        status = get(client, config->queue, invocation->operands[0], &err);
    }
    if (client) {
        client_close(client);
    }
    address_free(&address);
    return status == STATUS_OK ? EX_OK : report(invocation, &err);
}

const struct subcommand command_get = {
    .name = "get",
    .bit = FOR_GET,
    .operands = "ID",
    .summary = "Print the reply of a request as one line of JSON",
    .explanation = "Exit 69 when there is no reply (yet).",
    .run = run,
};
