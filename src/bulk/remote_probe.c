/* A queue says in `meta` which model it has, but not its dimension: the first reply does. */
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bulk/remote_ask.h"

enum { TIMEOUT_MS = 5000, ANSWER_MS = 60000, PAUSE_MS = 20, KEY_MAX = 256 };

enum field { STATUS_FIELD, MESSAGE, MODEL, REVISION, PRECISION, DIM, EMBEDDING, FIELDS };

static void copy(const struct resp_value *value, const char *otherwise, char *to, size_t size)
{
    snprintf(to, size, "%s", value->bytes == NULL ? otherwise : value->bytes);
}

static enum status read_vector(const struct resp_value *items, const char *queue, struct remote_facts *out,
                               struct err *err)
{
    uint64_t dim = remote_number(&items[DIM]);
    if (dim == 0 || dim > 1 << 16 || items[EMBEDDING].length != dim * sizeof(float))
        return err_set(err, STATUS_INTERNAL, "queue %s answered with a reply that is no vector", queue);
    double square = 0;
    for (uint64_t i = 0; i < dim; i++) {
        float value;
        memcpy(&value, items[EMBEDDING].bytes + i * sizeof value, sizeof value);
        square += (double)value * (double)value;
    }
    out->dim = (uint32_t)dim;
    out->normalized = fabs(square - 1) < 1e-3;
    copy(&items[MODEL], "", out->model, sizeof out->model);
    copy(&items[REVISION], "", out->revision, sizeof out->revision);
    copy(&items[PRECISION], "f32", out->precision, sizeof out->precision);
    return STATUS_OK;
}

static enum status read_model(const struct remote_options *options, struct client *client, struct remote_facts *out,
                              struct err *err)
{
    char key[KEY_MAX];
    const struct resp_value *reply;
    snprintf(key, sizeof key, "sluice:{%s}:meta", options->queue);
    TRY(client_command(client, 3, (const char *const[]){"HMGET", key, "model_id"}, NULL, &reply, err));
    if (reply->type != RESP_ARRAY || reply->count != 1 || reply->items[0].bytes == NULL)
        return err_set(err, STATUS_UNAVAILABLE, "queue %s has no model yet: no worker has ever joined it",
                       options->queue);
    copy(&reply->items[0], "", out->model_id, sizeof out->model_id);
    return STATUS_OK;
}

static enum status send(const struct remote_options *options, struct client *client, char key[KEY_MAX], struct err *err)
{
    char stream[KEY_MAX];
    const struct resp_value *reply;
    snprintf(stream, sizeof stream, "sluice:{%s}:%s", options->queue, class_streams[CLASS_NORMAL]);
    const char *words[] = {"XADD", stream, "*", "text", "sluice", "encoding", "f32", "ttl", "60", NULL, NULL};
    size_t count = 9;
    if (options->prompt != NULL || options->prefix != NULL) {
        words[count++] = options->prompt != NULL ? "prompt" : "prefix";
        words[count++] = options->prompt != NULL ? options->prompt : options->prefix;
    }
    TRY(client_command(client, count, words, NULL, &reply, err));
    snprintf(key, KEY_MAX, "sluice:{%s}:reply:%.64s", options->queue, reply->bytes == NULL ? "" : reply->bytes);
    return STATUS_OK;
}

static enum status wait(const struct remote_options *options, struct client *client, const char *key,
                        struct remote_facts *out, struct err *err)
{
    const char *const words[] = {"HMGET",    key,         "status", "message",  "model",
                                 "revision", "precision", "dim",    "embedding"};
    uint64_t begin_ms = clock_now_ms();
    while (clock_now_ms() - begin_ms < ANSWER_MS && (options->stop == NULL || *options->stop == 0)) {
        const struct resp_value *reply;
        TRY(client_command(client, FIELDS + 2, words, NULL, &reply, err));
        if (reply->type != RESP_ARRAY || reply->count != FIELDS)
            return err_set(err, STATUS_INTERNAL, "HMGET answered in an unknown shape");
        if (resp_equals(&reply->items[STATUS_FIELD], "done"))
            return read_vector(reply->items, options->queue, out, err);
        if (resp_equals(&reply->items[STATUS_FIELD], "error"))
            return err_set(err, STATUS_BAD_INPUT, "queue %s answered with an error: %.200s", options->queue,
                           reply->items[MESSAGE].bytes == NULL ? "" : reply->items[MESSAGE].bytes);
        poll(NULL, 0, PAUSE_MS);
    }
    return err_set(err, STATUS_UNAVAILABLE, "no answer from queue %s; is a daemon running? (sluice workers)",
                   options->queue);
}

enum status remote_probe(const struct remote_options *options, struct remote_facts *out, struct err *err)
{
    struct client *client;
    char key[KEY_MAX];
    *out = (struct remote_facts){0};
    TRY(client_open(options->address, TIMEOUT_MS, &client, err));
    enum status status = read_model(options, client, out, err);
    if (status == STATUS_OK)
        status = send(options, client, key, err);
    if (status == STATUS_OK)
        status = wait(options, client, key, out, err);
    client_close(client);
    return status;
}
