#include "engine/auto_precision.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/version.h"
#include "engine/backend.h"
#include "engine/engine.h"
#include "engine/kept.h"

enum { ROWS = 2, ROW_TOKENS = 64, WORDS = 256, RUNS = 3, TEXT_BYTES = 512 };

/* The two that are compared, each with its engine. */
enum { F32, BF16, RIVALS };

struct rival {
    struct engine *engine;
    struct encoder *encoder;
    double ns; /* the best run */
};

/* One layer of the model and a few of its words: what a pass consists of, without the time that packing all of it
 * takes. */
static struct model sample_of(const struct model *model)
{
    struct model sample = *model;
    sample.layer_count = 1;
    sample.vocabulary = model->vocabulary < WORDS ? model->vocabulary : WORDS;
    sample.word_embeddings.shape[0] = sample.vocabulary;
    sample.word_embeddings.elements = (size_t)sample.vocabulary * model->hidden;
    sample.generates = false;
    sample.read_once = false; /* the tensors are still needed */
    return sample;
}

static enum status open_rival(const struct backend_ops *ops, const struct model *sample,
                              const struct engine_options *options, enum precision precision, struct rival *out,
                              struct err *err)
{
    struct engine_options asked = *options;
    asked.precision = precision;
    TRY(engine_open_with(ops, sample, &asked, &out->engine, err));
    return encoder_open(out->engine, &out->encoder, err);
}

static void close_rivals(struct rival rivals[RIVALS])
{
    for (int i = 0; i < RIVALS; i++) {
        encoder_close(rivals[i].encoder);
        engine_close(rivals[i].engine);
    }
}

/* Runs both in turn, so that both see the same machine; the first run of each warms up for the others. */
static enum status run_both(struct rival rivals[RIVALS], const struct model *sample, struct err *err)
{
    int32_t ids[ROWS * ROW_TOKENS];
    uint32_t length = sample->max_tokens < ROW_TOKENS ? sample->max_tokens : ROW_TOKENS;
    uint32_t starts[ROWS], lengths[ROWS];
    float *output = calloc((size_t)ROWS * sample->dim, sizeof *output);
    if (!output) { return err_set(err, STATUS_NO_MEMORY, "no memory to measure precisions"); }
    for (uint32_t i = 0; i < ROWS * length; i++) { ids[i] = (int32_t)(i * 7 % sample->vocabulary); }
    for (uint32_t row = 0; row < ROWS; row++) {
        starts[row] = row * length;
        lengths[row] = length;
    }
    struct engine_batch batch = {
        .rows = ROWS, .extent = ROWS * length, .ids = ids, .start = starts, .length = lengths, .output = output};
    enum status status = STATUS_OK;
    for (int run = 0; run <= RUNS; run++) {
        for (int i = 0; i < RIVALS && status == STATUS_OK; i++) {
            uint64_t begin = clock_thread_ns();
            status = encoder_run(rivals[i].encoder, &batch, err);
            double took = (double)(clock_thread_ns() - begin);
            if (run == 1 || (run > 1 && took < rivals[i].ns)) { rivals[i].ns = took > 1 ? took : 1; }
        }
    }
    free(output);
    return status;
}

enum precision auto_precision_of(double f32_ns, double bf16_ns)
{
    return bf16_ns < 0.95 * f32_ns ? PRECISION_BF16 : PRECISION_F32;
}

/* --- What is kept --- */

/* Identifies what the times belong to; any other machine, shape or version has a file of another name. */
static void print_head(const struct engine *engine, const struct model *model, char out[TEXT_BYTES])
{
    char layer[BACKEND_LAYER_TEXT];
    snprintf(out, TEXT_BYTES, "sluice precision 3\nversion %s\ndevice %s\nlayers of %s\n", sluice_version,
             engine_device(engine), backend_print_layer(model, layer));
}

static bool parse_times(const char *text, struct rival rivals[RIVALS])
{
    return sscanf(text, "f32 %lf bf16 %lf", &rivals[F32].ns, &rivals[BF16].ns) == RIVALS && rivals[F32].ns >= 1 &&
           rivals[BF16].ns >= 1;
}

static void keep_times(struct kept *kept, const struct rival rivals[RIVALS])
{
    struct buffer text = {0};
    buffer_format(&text, "f32 %.0f bf16 %.0f\n", rivals[F32].ns, rivals[BF16].ns);
    kept_write(kept, &text);
    buffer_free(&text);
}

/* --- All of it --- */

/* Logs the choice at level info only when it was measured just now, so that commands that are started often stay quiet.
 */
static void log_choice(enum precision chosen, const struct rival rivals[RIVALS], bool known)
{
    char because[64];
    double ratio = rivals[BF16].ns / rivals[F32].ns;
    snprintf(because, sizeof because, "bf16 takes %.2f times as long as f32", ratio);
    if (known) {
        log_debug("precision_chosen", log_str("precision", precision_name(chosen)), log_str("because", because));
    } else {
        log_info("precision_chosen", log_str("precision", precision_name(chosen)), log_str("because", because));
    }
}

enum status auto_precision(const struct backend_ops *ops, const struct model *model,
                           const struct engine_options *options, enum precision native, enum precision *out,
                           struct err *err)
{
    *out = native;
    if (native != PRECISION_BF16) { return STATUS_OK; }
    char head[TEXT_BYTES];
    struct kept kept;
    struct rival rivals[RIVALS] = {0};
    struct model sample = sample_of(model);
    enum status status = open_rival(ops, &sample, options, PRECISION_F32, &rivals[F32], err);
    bool known = false;
    if (status == STATUS_OK) {
        print_head(rivals[F32].engine, model, head);
        kept_open(&kept, options->cache_path, "precision", head);
        known = parse_times(kept.text, rivals);
        if (!known) { status = open_rival(ops, &sample, options, native, &rivals[BF16], err); }
        if (status == STATUS_OK && !known) { status = run_both(rivals, &sample, err); }
        if (status == STATUS_OK && !known) { keep_times(&kept, rivals); }
        kept_close(&kept);
    }
    close_rivals(rivals);
    if (status == STATUS_OK) {
        *out = auto_precision_of(rivals[F32].ns, rivals[BF16].ns);
        log_choice(*out, rivals, known);
    }
    return status;
}
