/* Configurations made from a configuration: one for each queue that a daemon serves, and a new one on reload. */
#include <stdlib.h>
#include <string.h>

#include "serve/config.h"

enum status config_pick_queue(struct config *config, struct err *err)
{
    if (config->queues.count == 0 || config_source_of(config, "queue") != SOURCE_DEFAULT)
        return STATUS_OK;
    char *first = strdup(config_queue_value(&config->queues, 0, "queue"));
    if (first == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the name of a queue");
    free(config->queue);
    config->queue = first;
    return STATUS_OK;
}

/* All settings of `config`, with those of an entry of `queues` over them. */
static enum status derive(const struct config *config, const struct config_queue *queue, struct config *out,
                          struct err *err)
{
    size_t count;
    const struct setting *table = config_settings(&count);
    memset(out, 0, sizeof *out);
    memcpy(out->sources, config->sources, sizeof out->sources);
    for (size_t i = 0; i < count; i++) {
        const char *text = queue == NULL ? NULL : queue->values[i];
        if (text == NULL) {
            TRY(setting_copy(&table[i], config, out, err));
        } else {
            TRY(setting_parse(&table[i], text, table[i].key, out, err));
            out->sources[i] = SOURCE_FILE;
        }
    }
    /* What an entry says stands against what all queues have in common: a prompt of its own replaces their prefix. */
    const char *own_prompt = queue == NULL ? NULL : queue->values[setting_find(table, count, "prompt") - table];
    const char *own_prefix = queue == NULL ? NULL : queue->values[setting_find(table, count, "prefix") - table];
    char **replaced = own_prompt != NULL && own_prefix == NULL   ? &out->prefix
                      : own_prefix != NULL && own_prompt == NULL ? &out->prompt
                                                                 : NULL;
    if (replaced != NULL) {
        free(*replaced);
        *replaced = NULL;
    }
    return config_check(out, err) == STATUS_OK ? STATUS_OK : err_prefix(err, "queue %s", out->queue);
}

enum status config_split(const struct config *config, struct config **out, size_t *count, struct err *err)
{
    const struct config_queues *queues = &config->queues;
    bool picked = queues->count > 0 && config_source_of(config, "queue") > SOURCE_FILE;
    size_t most = queues->count == 0 || picked ? 1 : queues->count;
    struct config *items = calloc(most, sizeof *items);
    if (items == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the settings of %zu queues", most);
    size_t made = 0;
    enum status status = queues->count == 0 ? derive(config, NULL, &items[made++], err) : STATUS_OK;
    for (size_t i = 0; i < queues->count && status == STATUS_OK; i++)
        if (!picked || strcmp(config_queue_value(queues, i, "queue"), config->queue) == 0)
            status = derive(config, &queues->items[i], &items[made++], err);
    if (status == STATUS_OK && made == 0)
        status = err_set(err, STATUS_BAD_INPUT, "the configuration file lists `queues`, and %s is none of them",
                         config->queue);
    if (status == STATUS_OK) {
        *out = items;
        *count = made;
        return STATUS_OK;
    }
    while (made > 0)
        config_free(&items[--made]);
    free(items);
    return status;
}

enum status config_reload(const struct config *old, const char *path, struct config *out, struct err *err)
{
    size_t count;
    const struct setting *table = config_settings(&count);
    TRY(config_init(out, err));
    for (size_t i = 0; i < count; i++)
        if (old->sources[i] > SOURCE_FILE) {
            TRY(setting_copy(&table[i], old, out, err));
            out->sources[i] = old->sources[i];
        }
    if (path != NULL)
        TRY(config_read(out, path, err));
    if (out->model == NULL && old->model != NULL && config_source_of(old, "model") == SOURCE_DEFAULT)
        TRY(setting_copy(setting_find(table, count, "model"), old, out, err));
    TRY(config_pick_queue(out, err));
    return config_check(out, err);
}
