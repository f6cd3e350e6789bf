#include "fake_backend.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

struct device_backend {
    struct backend head;
    struct fake_device *device;
};

struct backend_workspace {
    const struct backend *backend;
    struct fake_device *device;
    const struct pass *begun, *waiting[BACKEND_SLOTS_MAX];
    unsigned count;
    bool finite; /* the pass that was waited for last */
};

struct fake_backend fake;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the devices */
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;

void fake_reset(void)
{
    fake = (struct fake_backend){.slots = 3,
                                 .device_count = 1,
                                 .limits = {.tokens = UINT32_MAX, .rows = UINT32_MAX},
                                 .failure = STATUS_INTERNAL};
}

static void set(bool *what, bool value)
{
    pthread_mutex_lock(&lock);
    *what = value;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&lock);
}

void fake_hold(unsigned device, bool held)
{
    set(&fake.devices[device].held, held);
}

void fake_lose(unsigned device)
{
    set(&fake.devices[device].lost, true);
}

void fake_set_closed(bool closed)
{
    set(&fake.closed, closed);
}

unsigned fake_begun(unsigned device)
{
    pthread_mutex_lock(&lock);
    unsigned count = fake.devices[device].begun;
    pthread_mutex_unlock(&lock);
    return count;
}

void fake_wait_begun(unsigned device, unsigned count)
{
    pthread_mutex_lock(&lock);
    while (fake.devices[device].begun < count) { pthread_cond_wait(&moved, &lock); }
    pthread_mutex_unlock(&lock);
}

static enum status fake_devices(unsigned *count, struct err *err)
{
    (void)err;
    *count = fake.device_count;
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
    struct device_backend *backend = calloc(1, sizeof *backend);
    if (backend == NULL) { abort(); }
    backend->head = (struct backend){.model = model, .precision = options->precision, .slots = fake.slots};
    backend->device = &fake.devices[options->device];
    fake.opened++;
    *out = &backend->head;
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
    struct fake_device *device = ((struct device_backend *)(void *)backend)->device;
    if (device->streams + 1 == device->breaks_at) { return err_set(err, STATUS_DEVICE_LOST, "fell off the bus"); }
    struct backend_workspace *stream = calloc(1, sizeof *stream);
    if (stream == NULL) { abort(); }
    stream->backend = backend;
    stream->device = device;
    device->streams++;
    fake.streams++;
    *out = stream;
    return STATUS_OK;
}

static void fake_stream_close(struct backend_workspace *stream)
{
    fake.streams--;
    stream->device->streams--;
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

/* Begins a pass on a device; returns false if it is lost. */
static bool begin_on(struct fake_device *device)
{
    pthread_mutex_lock(&lock);
    while (fake.closed) { pthread_cond_wait(&moved, &lock); }
    bool lost = device->lost;
    if (lost) {
        device->refused++;
    } else {
        device->begun++;
        device->idle += getpriority(PRIO_PROCESS, 0) == 19;
        if (device->begun - device->ended > device->most) { device->most = device->begun - device->ended; }
        pthread_cond_broadcast(&moved);
    }
    pthread_mutex_unlock(&lock);
    return !lost;
}

/* Waits until a pass may end; returns false if the device is lost. */
static bool end_on(struct fake_device *device)
{
    pthread_mutex_lock(&lock);
    while (device->held && !device->lost) { pthread_cond_wait(&moved, &lock); }
    bool lost = device->lost;
    device->ended++;
    device->good += !lost;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&lock);
    return !lost;
}

static enum status fake_submit(struct backend_workspace *stream, struct err *err)
{
    if (pass_has(stream->begun, fake.submit_fails)) { return err_set(err, fake.failure, "fake: submit"); }
    if (stream->count == stream->backend->slots) { abort(); /* more than was promised */ }
    if (!begin_on(stream->device)) { return err_set(err, STATUS_DEVICE_LOST, "fell off the bus"); }
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

bool fake_helped(const struct backend_workspace *stream)
{
    return stream->begun->ids[0] % 2 == 1;
}

static enum status fake_wait(struct backend_workspace *stream, struct err *err)
{
    if (stream->count == 0) { abort(); /* nothing to wait for */ }
    const struct pass *pass = stream->waiting[0];
    stream->count--;
    for (unsigned i = 0; i < stream->count; i++) { stream->waiting[i] = stream->waiting[i + 1]; }
    if (!end_on(stream->device)) { return err_set(err, STATUS_DEVICE_LOST, "fell off the bus"); }
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

/* --- what a forward pass need not do here --- */

static enum status idle_linear(struct backend_workspace *stream, uint32_t layer, enum linear_site site, struct err *err)
{
    (void)stream, (void)layer, (void)site, (void)err;
    return STATUS_OK;
}

static enum status idle_attention(struct backend_workspace *stream, uint32_t layer, struct err *err)
{
    (void)stream, (void)layer, (void)err;
    return STATUS_OK;
}

static enum status idle_norm(struct backend_workspace *stream, uint32_t layer, enum norm_site site, struct err *err)
{
    (void)stream, (void)layer, (void)site, (void)err;
    return STATUS_OK;
}

static enum status idle_pool(struct backend_workspace *stream, struct err *err)
{
    (void)stream, (void)err;
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
