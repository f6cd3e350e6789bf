#include "compute/models.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "config/config.h"
#include "engine/cost.h"

enum status models_open(struct models *models, const struct config *config, unsigned most, struct err *err)
{
    *models = (struct models){.items = calloc(most, sizeof *models->items)};
    if (!models->items) { return err_set(err, STATUS_NO_MEMORY, "no memory for %u models", most); }
    return devices_open(&models->devices, config, most, err);
}

void models_close(struct models *models)
{
    devices_close(&models->devices);
    for (unsigned i = 0; i < models->count; i++) { model_close(models->items[i].model); }
    free(models->items);
    *models = (struct models){0};
}

static bool same_text(const char *a, const char *b)
{
    return !a || !b ? a == b : strcmp(a, b) == 0;
}

/* True if two queues' settings mean the same model on the same engine. */
static bool same_model(const struct config *a, const struct config *b)
{
    return same_text(a->model, b->model) && a->precision == b->precision && a->pooling == b->pooling &&
           a->max_tokens == b->max_tokens && same_text(a->prompt, b->prompt) && same_text(a->prefix, b->prefix);
}

/* Measures one device, because they are assumed to be alike. If calibration fails, the daemon starts without knowing
 * the engine's speed; the first batch finds the fault. The cost is kept for the next start, unless its times fit no
 * straight line, as on a busy machine. */
static void calibrate_model(const struct models *models, unsigned number, struct cost *cost)
{
    const struct config *config = models->items[number].config;
    const struct cost_source of = {devices_engine(&models->devices, number), models->items[number].model,
                                   config_threads(config)};
    char directory[FILE_PATH_BYTES];
    struct err err = {0};
    cache_directory(config->cache_dir, directory);
    *cost = cost_from(0, 0, 0);
    enum status recalled = directory[0] != '\0' ? cost_recall(directory, &of, cost, &err) : STATUS_NOT_FOUND;
    bool kept = recalled == STATUS_OK;
    if (!kept && recalled != STATUS_NOT_FOUND) {
        log_warn("calibration_ignored", log_str("directory", directory), log_str("reason", err.message));
    }
    if (!kept && cost_calibrate(&of, COST_CALIBRATE_NS, cost, &err) != STATUS_OK) {
        log_warn("not_calibrated", log_str("model", of.model->name), log_str("message", err.message));
        return;
    }
    bool straight = cost->error <= 0.1;
    if (!kept && directory[0] != '\0' && straight && cost_remember(directory, &of, cost, &err) != STATUS_OK) {
        log_warn("calibration_not_kept", log_str("directory", directory), log_str("reason", err.message));
    }
    log_info("calibrated", log_str("model", of.model->name), log_str("from", kept ? "cache" : "measurement"),
             log_int("batch_us", (int64_t)(cost->terms[0] / 1e3)), log_int("token_ns", (int64_t)cost->terms[1]),
             log_int("square_ps", (int64_t)(cost->terms[2] * 1e3)),
             log_int("help_percent", (int64_t)(100 * cost->help + 0.5)),
             log_int("error_percent", (int64_t)(100 * cost->error + 0.5)));
}

enum status models_find(struct models *models, const struct config *config, unsigned *number, struct err *err)
{
    for (unsigned i = 0; i < models->count; i++) {
        if (same_model(models->items[i].config, config)) {
            *number = i;
            return STATUS_OK;
        }
    }
    unsigned at = models->count;
    uint64_t began_ns = clock_now_ns();
    enum status status = config_served_model(config, &models->items[at].model, err);
    if (status != STATUS_OK) { return status; }
    models->items[at].config = config;
    models->count++;
    *number = at;
    TRY(devices_load(&models->devices, config, models->items[at].model, true, at, err));
    models->items[at].cost = cost_from(0, 0, 0);
    if (!models->items[at].model->generates) { calibrate_model(models, at, &models->items[at].cost); }
    models->items[at].load_ns = clock_now_ns() - began_ns;
    return STATUS_OK;
}

double models_token_cost(const struct model *model)
{
    double hidden = model->hidden, inner = model->intermediate_size;
    return model->layer_count * (4 * hidden * hidden + 2 * hidden * inner);
}
