/* A connection with a private event loop and a queue of answers. */
#include "redis/client.h"

#include <event2/event.h>
#include <stdlib.h>

#include "redis/connection.h"
#include "redis/find_master.h"

enum { CLIENT_REPLY_BYTES = 256 << 20 };

struct answer {
    struct answer *next;
    struct resp_value *value;
};

struct client {
    struct event_base *base;
    struct find_master *finder;
    struct connection *connection;
    const struct address *address;
    uint32_t timeout_ms;
    bool up;
    struct err err; /* why the connection is down */
    struct answer *first, *last;
    struct resp_value *current; /* the answer that the caller has */
};

static void on_up(void *context)
{
    struct client *client = context;
    client->up = true;
}

static void on_down(void *context, const struct err *err)
{
    struct client *client = context;
    client->up = false;
    client->err = *err;
}

static void on_reply(void *context, const struct resp_value *reply)
{
    struct client *client = context;
    if (!reply || client->err.status) { return; }
    struct answer *answer = calloc(1, sizeof *answer);
    if (!answer || !(answer->value = resp_clone(reply))) {
        free(answer);
        err_set(&client->err, STATUS_NO_MEMORY, "no memory for an answer of Redis");
        return;
    }
    *(client->last ? &client->last->next : &client->first) = answer;
    client->last = answer;
}

static void on_found(void *context, const struct endpoint *endpoint)
{
    struct client *client = context;
    struct connection_options options = {
        .base = client->base,
        .address = client->address,
        .endpoint = endpoint,
        .resolver = find_master_resolver(client->finder),
        .name = "sluice-cli",
        .master_only = endpoint,
        .connect_timeout_ms = client->timeout_ms,
        .max_reply_bytes = CLIENT_REPLY_BYTES,
        .context = client,
        .on_up = on_up,
        .on_down = on_down,
    };
    if (connection_open(&options, &client->connection, &client->err)) {
        client->up = false; /* client_open looks at `err` */
    }
}

enum status client_open(const struct address *address, uint32_t timeout_ms, struct client **out, struct err *err)
{
    struct client *client = calloc(1, sizeof *client);
    if (!client || !(client->base = event_base_new())) {
        free(client);
        return err_set(err, STATUS_NO_MEMORY, "no memory for a Redis client");
    }
    client->address = address;
    client->timeout_ms = timeout_ms;
    struct find_master_options options = {.base = client->base,
                                          .address = address,
                                          .timeout_ms = timeout_ms,
                                          .context = client,
                                          .on_found = on_found,
                                          .on_failed = on_down};
    enum status status = find_master_open(&options, &client->finder, err);
    if (!status) { find_master_start(client->finder); }
    while (!status && !client->up) {
        if (client->err.status) {
            status = err_set(err, client->err.status, "%s", client->err.message);
        } else {
            event_base_loop(client->base, EVLOOP_ONCE);
        }
    }
    if (status) {
        client_close(client);
        return status;
    }
    *out = client;
    return STATUS_OK;
}

void client_close(struct client *client)
{
    if (!client) { return; }
    connection_close(client->connection);
    find_master_close(client->finder);
    while (client->first) {
        struct answer *answer = client->first;
        client->first = answer->next;
        free(answer->value);
        free(answer);
    }
    free(client->current);
    event_base_free(client->base);
    free(client);
}

enum status client_send(struct client *client, size_t count, const char *const *arguments, const size_t *lengths,
                        uint32_t block_ms, struct err *err)
{
    if (client->err.status) { return err_set(err, client->err.status, "%s", client->err.message); }
    enum status status = connection_command(client->connection, count, arguments, lengths,
                                            client->timeout_ms + block_ms, on_reply, client, err);
    if (!status) { event_base_loop(client->base, EVLOOP_NONBLOCK); /* it leaves while the caller makes the next one */ }
    return status;
}

enum status client_receive(struct client *client, const struct resp_value **out, struct err *err)
{
    *out = NULL;
    while (!client->first && !client->err.status) { event_base_loop(client->base, EVLOOP_ONCE); }
    free(client->current);
    client->current = NULL;
    struct answer *answer = client->first;
    if (!answer) { return err_set(err, client->err.status, "%s", client->err.message); }
    client->first = answer->next;
    client->last = client->first ? client->last : NULL;
    client->current = answer->value;
    free(answer);
    *out = client->current;
    return resp_check(client->current, err);
}

enum status client_command(struct client *client, size_t count, const char *const *arguments, const size_t *lengths,
                           const struct resp_value **out, struct err *err)
{
    *out = NULL;
    enum status status = client_send(client, count, arguments, lengths, 0, err);
    return status ? status : client_receive(client, out, err);
}
