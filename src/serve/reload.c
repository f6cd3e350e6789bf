/* SIGHUP: a new configuration from the old sources. All of it is read and checked before any of it counts. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "serve/server.h"

/* Names each setting of a queue that differs and cannot change while the daemon runs. */
static void name_fixed(const struct config *now, const struct config *wanted)
{
    size_t count;
    const struct setting *table = config_settings(&count);
    for (size_t i = 0; i < count; i++)
        if (!table[i].live && !setting_equal(&table[i], now, wanted))
            log_warn("reload_needs_restart", log_str("queue", now->queue), log_str("setting", table[i].key));
}

static const struct config *find_queue(const struct config *configs, size_t count, const char *queue)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(configs[i].queue, queue) == 0)
            return &configs[i];
    return NULL;
}

/* Tunes every lane that is still in the configuration. */
static enum status take_over(struct server *server, const struct config *configs, size_t count, struct err *err)
{
    bool same_queues = count == server->lane_count;
    for (size_t i = 0; i < server->lane_count; i++) {
        struct lane *lane = &server->lanes[i];
        const struct config *wanted = find_queue(configs, count, lane->config->queue);
        same_queues &= wanted != NULL;
        if (wanted == NULL)
            continue;
        name_fixed(lane->config, wanted);
        TRY(lane_tune(lane, wanted, err));
    }
    if (!same_queues)
        log_warn("reload_needs_restart", log_str("setting", "queues"));
    return STATUS_OK;
}

void server_reload(struct server *server)
{
    struct config fresh;
    struct config *configs = NULL;
    size_t count = 0;
    struct err err;
    enum status status = config_reload(server->config, server->config_path, &fresh, &err);
    if (status == STATUS_OK)
        status = config_split(&fresh, &configs, &count, &err);
    if (status == STATUS_OK)
        status = take_over(server, configs, count, &err);
    if (status == STATUS_OK) {
        log_info("reloaded", log_str("file", server->config_path));
        log_set_level((enum log_level)fresh.log_level);
    } else {
        log_error("reload_refused", log_str("message", err.message),
                  log_str("effect", "the settings stay as they were"));
    }
    for (size_t i = 0; i < count; i++)
        config_free(&configs[i]);
    free(configs);
    config_free(&fresh);
}
