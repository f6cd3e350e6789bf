#include "fake_backend.h"

#include <math.h>
#include <stdlib.h>

#include "idle_ops.h"

struct backend_workspace {
    const struct backend *backend;
    const struct pass *begun, *waiting[BACKEND_SLOTS_MAX];
    unsigned count;
    bool finite; /* the pass that was waited for last */
};

struct fake_backend fake;

void fake_reset(void)
{
    fake = (struct fake_backend){
        .slots = 3, .limits = {.tokens = UINT32_MAX, .rows = UINT32_MAX}, .failure = STATUS_INTERNAL};
}

static enum status fake_devices(unsigned *count, struct err *err)
{
    (void)err;
    *count = 1;
    return STATUS_OK;
}

static enum precision fake_choose(const struct model *model, enum precision asked)
{
    (void)model;
    return asked == PRECISION_AUTO ? PRECISION_F16 : asked;
}

static enum status fake_open(const struct model *model, const struct engine_options *options, struct backend **out,
                             struct err *err)
{
    enum status status = fake.open_fails[options->precision];
    if (status != STATUS_OK) { return err_set(err, status, "fake: no %s", precision_name(options->precision)); }
    struct backend *backend = calloc(1, sizeof *backend);
    if (backend == NULL) { abort(); }
    *backend = (struct backend){.model = model, .precision = options->precision, .slots = fake.slots};
    fake.opened++;
    *out = backend;
    return STATUS_OK;
}

static void fake_close(struct backend *backend)
{
    fake.opened--;
    free(backend);
}

static enum status fake_stream_open(struct backend *backend, struct backend_workspace **out, struct err *err)
{
    if (fake.stream_fails[backend->precision] != STATUS_OK) {
        return err_set(err, fake.stream_fails[backend->precision], "fake: no stream");
    }
    struct backend_workspace *stream = calloc(1, sizeof *stream);
    if (stream == NULL) { abort(); }
    stream->backend = backend;
    fake.streams++;
    *out = stream;
    return STATUS_OK;
}

static void fake_stream_close(struct backend_workspace *stream)
{
    fake.streams--;
    free(stream);
}

static struct pass_limits fake_limits(const struct backend_workspace *stream)
{
    (void)stream;
    return fake.limits;
}

static bool row_has(const struct pass *pass, uint32_t row, int32_t token)
{
    for (uint32_t t = 0; t < pass->length[row]; t++) {
        if (token != 0 && pass->ids[pass->start[row] - pass->origin + t] == token) { return true; }
    }
    return false;
}

static bool pass_has(const struct pass *pass, int32_t token)
{
    for (uint32_t row = 0; row < pass->rows; row++) {
        if (row_has(pass, row, token)) { return true; }
    }
    return false;
}

static enum status fake_embed(struct backend_workspace *stream, const struct pass *pass, struct err *err)
{
    stream->begun = pass;
    return pass_has(pass, fake.embed_fails) ? err_set(err, fake.failure, "fake: embed") : STATUS_OK;
}

static enum status fake_submit(struct backend_workspace *stream, struct err *err)
{
    if (pass_has(stream->begun, fake.submit_fails)) { return err_set(err, fake.failure, "fake: submit"); }
    if (stream->count == stream->backend->slots) { abort(); /* more than was promised */ }
    stream->waiting[stream->count++] = stream->begun;
    fake.passes++;
    fake.passes_in[stream->backend->precision]++;
    if (stream->count > fake.most_waiting) { fake.most_waiting = stream->count; }
    if (stream->begun->rows > fake.most_rows) { fake.most_rows = stream->begun->rows; }
    return STATUS_OK;
}

static float value_of(const struct pass *pass, uint32_t row, enum precision precision)
{
    float sum = precision == PRECISION_BF16 ? 0.25f : precision == PRECISION_F32 ? 0.5f : 0.0f;
    for (uint32_t t = 0; t < pass->length[row]; t++) { sum += (float)pass->ids[pass->start[row] - pass->origin + t]; }
    if (pass->normalize) { sum += 0.125f; }
    return row_has(pass, row, fake.overflows[precision]) ? INFINITY : sum;
}

bool fake_finite(const struct backend_workspace *stream)
{
    return stream->finite;
}

static enum status fake_wait(struct backend_workspace *stream, struct err *err)
{
    if (stream->count == 0) { abort(); /* nothing to wait for */ }
    const struct pass *pass = stream->waiting[0];
    stream->count--;
    for (unsigned i = 0; i < stream->count; i++) { stream->waiting[i] = stream->waiting[i + 1]; }
    if (pass_has(pass, fake.wait_fails)) { return err_set(err, fake.failure, "fake: wait"); }
    uint32_t dim = stream->backend->model->hidden;
    stream->finite = !pass_has(pass, fake.overflows[stream->backend->precision]);
    for (uint32_t row = 0; row < pass->rows; row++) {
        for (uint32_t i = 0; i < dim; i++) {
            pass->output[(size_t)row * dim + i] = value_of(pass, row, stream->backend->precision);
        }
    }
    return STATUS_OK;
}

const struct backend_ops fake_backend = {
    .name = "fake",
    .devices = fake_devices,
    .choose = fake_choose,
    .open = fake_open,
    .close = fake_close,
    .workspace_open = fake_stream_open,
    .workspace_close = fake_stream_close,
    .limits = fake_limits,
    .embed = fake_embed,
    .linear = idle_linear,
    .attention = idle_attention,
    .norm = idle_norm,
    .pool = idle_pool,
    .submit = fake_submit,
    .wait = fake_wait,
};
