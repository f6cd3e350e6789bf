/* Texts to vectors on this machine, without Redis. */
#include <sysexits.h>

#include "cli/command.h"
#include "cli/embed.h"
#include "serve/start.h"

struct own {
    char *input, *output;
};

static const struct setting own_settings[] = {
    {.key = "input",
     .type = SETTING_TEXT,
     .offset = offsetof(struct own, input),
     .fallback = "-",
     .value = "FILE",
     .help = "one text per line; - is standard input"},
    {.key = "output",
     .type = SETTING_TEXT,
     .offset = offsetof(struct own, output),
     .fallback = "-",
     .value = "FILE",
     .help = "FILE.npy (float32), FILE.jsonl, or - for JSON lines on standard output"},
};

/* Engine and threads are open from here on; files next. */
static enum status embed_files(const struct own *own, struct embed_job job, struct err *err)
{
    struct lines lines;
    struct vectors vectors;
    struct progress progress;
    enum status status = lines_open(&lines, own->input, err);
    if (status != STATUS_OK)
        return status;
    status = vectors_open(&vectors, own->output, job.model->dim, err);
    if (status == STATUS_OK) {
        job.lines = &lines;
        job.vectors = &vectors;
        job.progress = &progress;
        progress_start(&progress);
        status = embed_run(&job, err);
        if (status == STATUS_OK)
            status = vectors_close(&vectors, err);
        else
            vectors_abandon(&vectors);
        progress_end(&progress, vectors.count);
    }
    lines_close(&lines);
    return status;
}

/* A CPU gains nothing by larger batches, and threads that end at different times wait for less at the end of the file.
 */
static uint32_t batch_tokens(const struct config *config, const struct engine *engine)
{
    enum { CPU_TOKENS = 1024 };
    bool small = encoder_slots(engine) == 1 && config->max_batch_tokens > CPU_TOKENS;
    return small ? CPU_TOKENS : (uint32_t)config->max_batch_tokens;
}

static enum status embed(const struct config *config, const struct own *own, struct model *model,
                         const struct devices *devices, struct err *err)
{
    struct compute *compute = NULL;
    struct compute_options options = {.devices = devices->items,
                                      .device_count = devices->count,
                                      .engine_count = 1,
                                      .threads = start_threads(config),
                                      .queued = 3, /* so that they have work while the next window is read */
                                      .wake_fd = -1};
    TRY(compute_open(&options, &compute, err));
    struct embed_job job = {.model = model,
                            .compute = compute,
                            .max_batch_tokens = batch_tokens(config, devices_engine(devices, 0)),
                            .max_batch_rows = (uint32_t)config->max_batch_rows};
    enum status status = embed_files(own, job, err);
    compute_close(compute);
    return status;
}

static enum status embed_on_devices(const struct config *config, const struct own *own, struct model *model,
                                    struct err *err)
{
    struct devices devices;
    enum status status = devices_open(&devices, config, 1, err);
    if (status == STATUS_OK)
        status = devices_load(&devices, config, model, false, 0, err);
    if (status == STATUS_OK)
        status = embed(config, own, model, &devices, err);
    devices_close(&devices);
    return status;
}

static int run(struct invocation *invocation)
{
    struct err err;
    struct model *model = NULL;
    enum status status = start_model(&invocation->config, &model, &err);
    if (status == STATUS_OK) {
        status = embed_on_devices(&invocation->config, invocation->own, model, &err);
        model_close(model);
    }
    return status == STATUS_OK ? EX_OK : report(invocation, &err);
}

const struct subcommand command_embed = {
    .name = "embed",
    .bit = FOR_EMBED,
    .summary = "Turn a file of texts into vectors, without Redis",
    .explanation =
        "Reads one text per line (an empty line is a text, too) and writes one vector per line, in the same\n"
        "order. The vectors are those that the daemon gives for the same texts and precision.",
    .own = own_settings,
    .own_count = sizeof own_settings / sizeof own_settings[0],
    .own_size = sizeof(struct own),
    .run = run,
};
