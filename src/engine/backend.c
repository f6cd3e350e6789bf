/* The table of backends and the functions that search it, the names of precisions, and the null backend. A new backend
 * is a file and a row here. */
#include "engine/backend.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const precision_names[] = {
    [PRECISION_AUTO] = "auto", [PRECISION_F32] = "f32",   [PRECISION_BF16] = "bf16",
    [PRECISION_F16] = "f16",   [PRECISION_INT8] = "int8", [PRECISION_INT8_ALL] = "int8_all",
};

const char *precision_name(enum precision precision)
{
    return precision_names[precision];
}

enum status precision_parse(const char *name, enum precision *out, struct err *err)
{
    for (unsigned i = 0; i < sizeof precision_names / sizeof precision_names[0]; i++) {
        if (strcmp(name, precision_names[i]) == 0) {
            *out = (enum precision)i;
            return STATUS_OK;
        }
    }
    return err_set(err, STATUS_BAD_INPUT, "precision \"%.40s\" is not one of auto, f32, bf16, f16, int8, int8_all",
                   name);
}

const char *backend_print_layer(const struct model *model, char text[BACKEND_LAYER_TEXT])
{
    snprintf(text, BACKEND_LAYER_TEXT,
             "hidden %" PRIu32 " heads %" PRIu32 " keys %" PRIu32 " dim %" PRIu32 " inner %" PRIu32
             " gated %d rotary %d causal %d window %" PRIu32,
             model->hidden, model->heads, model_key_heads(model), model_head_dim(model), model->intermediate_size,
             model->gated, model->rotary[0].base > 0, model->causal, model->window);
    return text;
}

void backend_linear_shape(const struct model *model, enum linear_site site, uint32_t *outputs, uint32_t *inputs)
{
    const uint32_t shapes[][2] = {
        [LINEAR_QKV] = {model_query_width(model) + 2 * model_key_width(model), model->hidden},
        [LINEAR_ATTENTION_OUTPUT] = {model->hidden, model_query_width(model)},
        [LINEAR_INTERMEDIATE] = {model->intermediate_size * (model->gated ? 2 : 1), model->hidden},
        [LINEAR_OUTPUT] = {model->hidden, model->intermediate_size},
    };
    *outputs = shapes[site][0];
    *inputs = shapes[site][1];
}

/* --- the null backend ---
 * It computes nothing: a row's vector is a hash of its ids, spread over [-1, 1]. It needs no weights. It serves to
 * measure the queue without an engine, and its vectors differ, so that tests can tell them apart. */

struct backend_workspace {
    const struct model *model;
    const struct pass *pass;
};

static enum status null_devices(unsigned *count, struct err *err)
{
    (void)err;
    *count = 1;
    return STATUS_OK;
}

static enum precision null_choose(const struct model *model, enum precision asked)
{
    (void)model;
    return asked == PRECISION_AUTO ? PRECISION_F32 : asked;
}

static enum status null_open(const struct model *model, const struct engine_options *options, struct backend **out,
                             struct err *err)
{
    struct backend *backend = calloc(1, sizeof *backend);
    if (!backend) { return err_set(err, STATUS_NO_MEMORY, "no memory for the null backend"); }
    *backend = (struct backend){.model = model, .precision = options->precision, .device = "none", .slots = 1};
    *out = backend;
    return STATUS_OK;
}

static void null_close(struct backend *backend)
{
    free(backend);
}

static enum status null_workspace_open(struct backend *backend, struct backend_workspace **out, struct err *err)
{
    struct backend_workspace *workspace = calloc(1, sizeof *workspace);
    if (!workspace) { return err_set(err, STATUS_NO_MEMORY, "no memory for a null workspace"); }
    workspace->model = backend->model;
    *out = workspace;
    return STATUS_OK;
}

static void null_workspace_close(struct backend_workspace *workspace)
{
    free(workspace);
}

static struct pass_limits null_limits(const struct backend_workspace *workspace)
{
    (void)workspace;
    return (struct pass_limits){.tokens = UINT32_MAX, .rows = UINT32_MAX};
}

static enum status null_embed(struct backend_workspace *workspace, const struct pass *pass, struct err *err)
{
    (void)err;
    workspace->pass = pass;
    return STATUS_OK;
}

static enum status null_linear(struct backend_workspace *workspace, uint32_t layer, enum linear_site site,
                               struct err *err)
{
    (void)workspace, (void)layer, (void)site, (void)err;
    return STATUS_OK;
}

static enum status null_attention(struct backend_workspace *workspace, uint32_t layer, struct err *err)
{
    (void)workspace, (void)layer, (void)err;
    return STATUS_OK;
}

static enum status null_norm(struct backend_workspace *workspace, uint32_t layer, enum norm_site site, struct err *err)
{
    (void)workspace, (void)layer, (void)site, (void)err;
    return STATUS_OK;
}

/* One step of a 64-bit generator whose every output bit depends on every input bit. */
static uint64_t mix_seed(uint64_t x)
{
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
    return x ^ x >> 32;
}

static void null_vector(const struct model *model, const int32_t *ids, uint32_t length, float *to)
{
    uint64_t seed = length;
    for (uint32_t t = 0; t < length; t++) {
        seed = mix_seed(seed + (uint64_t)(uint32_t)ids[t] + 0x9e3779b97f4a7c15ull);
    }
    for (uint32_t i = 0; i < model->hidden; i++) { to[i] = (float)(mix_seed(seed + i) >> 40) * 0x1p-23f - 1.0f; }
}

static enum status null_pool(struct backend_workspace *workspace, struct err *err)
{
    (void)err;
    const struct pass *pass = workspace->pass;
    for (uint32_t r = 0; r < pass->rows; r++) {
        null_vector(workspace->model, pass->ids + (pass->start[r] - pass->origin), pass->length[r],
                    pass->output + (size_t)r * workspace->model->hidden);
    }
    return STATUS_OK;
}

static enum status null_submit(struct backend_workspace *workspace, struct err *err)
{
    (void)workspace, (void)err;
    return STATUS_OK;
}

static enum status null_wait(struct backend_workspace *workspace, struct err *err)
{
    (void)err;
    workspace->pass = NULL;
    return STATUS_OK;
}

const struct backend_ops backend_null = {
    .name = "null",
    .batch = {.tokens = 4096, .rows = 256},
    .devices = null_devices,
    .choose = null_choose,
    .open = null_open,
    .close = null_close,
    .workspace_open = null_workspace_open,
    .workspace_close = null_workspace_close,
    .limits = null_limits,
    .embed = null_embed,
    .linear = null_linear,
    .attention = null_attention,
    .norm = null_norm,
    .pool = null_pool,
    .submit = null_submit,
    .wait = null_wait,
};

/* --- the table, best first --- */

static const struct backend_ops *const table[] = {
#ifdef SLUICE_CUDA
    &backend_cuda,
#endif
    &backend_cpu, &backend_null, /* last: "auto" never chooses it */
};

enum { TABLE_ROWS = sizeof table / sizeof table[0], AUTO_ROWS = TABLE_ROWS - 1 };

static void append_reason(char *text, size_t size, const char *more)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s", more);
}

static void list_names(char *names, size_t size)
{
    names[0] = '\0';
    for (size_t i = 0; i < TABLE_ROWS; i++) {
        append_reason(names, size, ", ");
        append_reason(names, size, table[i]->name);
    }
}

enum status backend_choose(const struct backend_ops *ops, const struct model *model, enum precision asked,
                           enum precision *out, struct err *err)
{
    *out = ops->choose(model, asked);
    if (*out == PRECISION_AUTO) {
        return err_set(err, STATUS_UNSUPPORTED, "backend \"%s\" cannot compute in %s on this machine", ops->name,
                       precision_name(asked));
    }
    return STATUS_OK;
}

/* Succeeds if "auto" may choose this row of the table. */
static enum status consider_backend(const struct backend_ops *ops, enum precision asked, const struct model *model,
                                    struct err *err)
{
    unsigned count;
    enum precision chosen;
    TRY(ops->devices(&count, err));
    TRY(backend_choose(ops, model, asked, &chosen, err));
    if (model && model->generates && !ops->decoder) {
        return err_set(err, STATUS_UNSUPPORTED, "backend \"%s\" does not generate text", ops->name);
    }
    return model && ops->takes ? ops->takes(model, err) : STATUS_OK;
}

static enum status find_best(enum precision asked, const struct model *model, const struct backend_ops **out,
                             struct err *passed_over, struct err *err)
{
    char reasons[sizeof err->message] = "";
    for (size_t i = 0; i < AUTO_ROWS; i++) {
        struct err why = {0};
        if (consider_backend(table[i], asked, model, &why) == STATUS_OK) {
            *out = table[i];
            if (passed_over && i > 0) { (void)err_set(passed_over, STATUS_UNSUPPORTED, "%s", reasons); }
            return STATUS_OK;
        }
        append_reason(reasons, sizeof reasons, i == 0 ? "" : "; ");
        append_reason(reasons, sizeof reasons, why.message);
    }
    return err_set(err, STATUS_UNSUPPORTED, "%s", reasons);
}

enum status backend_find(const char *name, enum precision asked, const struct model *model,
                         const struct backend_ops **out, struct err *passed_over, struct err *err)
{
    if (passed_over) { *passed_over = (struct err){0}; }
    if (!name || strcmp(name, "auto") == 0) { return find_best(asked, model, out, passed_over, err); }
    for (size_t i = 0; i < TABLE_ROWS; i++) {
        if (strcmp(name, table[i]->name) != 0) { continue; }
        unsigned count;
        TRY(table[i]->devices(&count, err));
        *out = table[i];
        return STATUS_OK;
    }
    char names[128];
    list_names(names, sizeof names);
    return err_set(err, STATUS_UNSUPPORTED, "no backend \"%s\"; there are: auto%s", name, names);
}

enum status engine_devices(const char *backend, enum precision precision, unsigned *count, struct err *err)
{
    const struct backend_ops *ops;
    TRY(backend_find(backend, precision, NULL, &ops, NULL, err));
    return ops->devices(count, err);
}

enum status engine_find(const char *backend, enum precision precision, const char **name, struct err *passed_over,
                        struct err *err)
{
    const struct backend_ops *ops;
    TRY(backend_find(backend, precision, NULL, &ops, passed_over, err));
    *name = ops->name;
    return STATUS_OK;
}

enum status engine_default_batch(const char *backend, enum precision precision, struct batch_size *out,
                                 const char **name, struct err *err)
{
    const struct backend_ops *ops;
    TRY(backend_find(backend, precision, NULL, &ops, NULL, err));
    *out = ops->batch;
    *name = ops->name;
    return STATUS_OK;
}
