/* A backend that computes nothing: a row's vector is a hash of its ids, spread over [-1, 1]. It needs no weights. It
 * lets the queue be measured without an engine, and tests tell vectors apart. */
#include "engine/backend.h"

#include <stdlib.h>

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

static enum precision null_choose(enum precision asked)
{
    return asked == PRECISION_AUTO ? PRECISION_F32 : asked;
}

static enum status null_open(const struct model *model, const struct engine_options *options, struct backend **out,
                             struct err *err)
{
    struct backend *backend = calloc(1, sizeof *backend);
    if (!backend) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for the null backend");
    }
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
    if (!workspace) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for a null workspace");
    }
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
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
    return x ^ x >> 32;
}

static void null_vector(const struct model *model, const int32_t *ids, uint32_t length, float *to)
{
    uint64_t seed = length;
    for (uint32_t t = 0; t < length; t++) {
        seed = mix(seed + (uint64_t)(uint32_t)ids[t] + 0x9e3779b97f4a7c15ull);
    }
    for (uint32_t i = 0; i < model->dim; i++) {
        to[i] = (float)(mix(seed + i) >> 40) * 0x1p-23f - 1.0f;
    }
}

static enum status null_pool(struct backend_workspace *workspace, struct err *err)
{
    (void)err;
    const struct pass *pass = workspace->pass;
    for (uint32_t r = 0; r < pass->rows; r++) {
        null_vector(workspace->model, pass->ids + (pass->start[r] - pass->origin), pass->length[r],
                    pass->output + (size_t)r * workspace->model->dim);
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
