/* A file is believed if it is byte by byte what we would write for the numbers that it names. */
#include "engine/cost_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "base/cache.h"
#include "base/file.h"

enum { NAME_BYTES = 32, FILE_MAX_BYTES = 4096 };

/* What a lone pass costs, in strips. */
enum { LONE_MOST = 2 };

static void print_head(const struct cost_source *of, struct buffer *out)
{
    const struct model *model = of->model;
    buffer_format(out, "sluice cost 6\nversion %s\nbackend %s\ndevice %s\nthreads %u\nprecision %s\n", SLUICE_VERSION,
                  engine_backend(of->engine), engine_device(of->engine), of->threads,
                  precision_name(engine_precision(of->engine)));
    buffer_format(out, "shape layers %" PRIu32 " hidden %" PRIu32 " heads %" PRIu32 " inner %" PRIu32,
                  model->layer_count, model->hidden, model->heads, model->intermediate_size);
    buffer_format(out, " tokens %" PRIu32 " pooling %s\n", model->max_tokens,
                  model->pooling == POOLING_CLS ? "cls" : "mean");
}

/* 17 digits are enough to read a number back as it was. */
void cost_print(const struct cost_source *of, const struct cost *cost, struct buffer *out)
{
    print_head(of, out);
    const struct cost_device *device = &cost->device;
    buffer_format(out, "pass %.17g strip %.17g half %.17g keys %.17g room %.17g helped %.17g lone %.17g %.17g\n",
                  device->pass, device->strip, device->half, device->keys, device->room, device->helped,
                  device->lone[0], device->lone[1]);
    buffer_format(out, "terms %.17g %.17g %.17g help %.17g\n", cost->terms[0], cost->terms[1], cost->terms[2],
                  cost->help);
    if (buffer_ok(out))
        buffer_format(out, "checksum %016" PRIx64 "\n", (uint64_t)XXH64(out->data, out->length, 0));
}

/* One file for each head, so that they do not push each other out. */
static enum status file_name(const struct cost_source *of, char out[NAME_BYTES], struct err *err)
{
    struct buffer head = {0};
    print_head(of, &head);
    enum status status = STATUS_OK;
    if (buffer_ok(&head))
        snprintf(out, NAME_BYTES, "cost-%016" PRIx64 ".txt", (uint64_t)XXH64(head.data, head.length, 0));
    else
        status = err_set(err, STATUS_NO_MEMORY, "no memory for the name of a file");
    buffer_free(&head);
    return status;
}

/* No number but such as a device has and a fit finds: then nothing that is computed with them is not a number. */
static bool sound(const struct cost *cost)
{
    const struct cost_device *device = &cost->device;
    const double counts[] = {device->pass, device->strip, device->keys, device->room, device->helped};
    const double shares[] = {device->lone[0], device->lone[1], cost->terms[0],
                             cost->terms[1],  cost->terms[2],  cost->help};
    bool sound = cost_known(cost) && device->half >= 0 && device->half <= 1 && cost->help > 0 &&
                 device->lone[0] <= LONE_MOST && device->lone[1] <= LONE_MOST;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        sound &= counts[i] >= 0 && counts[i] <= UINT32_MAX && counts[i] == floor(counts[i]);
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++)
        sound &= isfinite(shares[i]) && shares[i] >= 0;
    return sound;
}

/* The numbers of a file; not known where it does not name all of them. */
static struct cost scan(const char *text)
{
    struct cost cost = cost_from(0, 0, 0);
    struct cost_device *device = &cost.device;
    const char *at = strstr(text, "\npass ");
    if (at == NULL ||
        sscanf(at,
               "\npass %lf strip %lf half %lf keys %lf room %lf helped %lf lone %lf %lf\n"
               "terms %lf %lf %lf help %lf",
               &device->pass, &device->strip, &device->half, &device->keys, &device->room, &device->helped,
               &device->lone[0], &device->lone[1], &cost.terms[0], &cost.terms[1], &cost.terms[2], &cost.help) != 12)
        return cost_from(0, 0, 0);
    return cost;
}

enum status cost_parse(const char *text, size_t length, const struct cost_source *of, struct cost *out, struct err *err)
{
    struct buffer same = {0};
    struct cost cost = scan(text);
    bool good = sound(&cost);
    *out = cost_from(0, 0, 0);
    if (good)
        cost_print(of, &cost, &same);
    bool complete = buffer_ok(&same);
    good = good && complete && same.length == length && memcmp(same.data, text, length) == 0;
    buffer_free(&same);
    if (good)
        *out = cost;
    if (!complete)
        return err_set(err, STATUS_NO_MEMORY, "no memory to read a calibration");
    return good ? STATUS_OK : err_set(err, STATUS_BAD_INPUT, "a calibration that is damaged");
}

enum status cost_recall(const char *directory, const struct cost_source *of, struct cost *out, struct err *err)
{
    char name[NAME_BYTES], path[CACHE_PATH_BYTES];
    struct buffer text = {0};
    struct err why = {0};
    *out = cost_from(0, 0, 0);
    TRY(file_name(of, name, err));
    TRY(cache_path(directory, name, path, err));
    enum status status = file_read(path, FILE_MAX_BYTES, &text, err);
    if (status == STATUS_OK) {
        status = cost_parse(text.data, text.length, of, out, &why);
        if (status != STATUS_OK)
            err_set(err, status, "%s: %s", path, why.message);
    }
    buffer_free(&text);
    return status;
}

enum status cost_remember(const char *directory, const struct cost_source *of, const struct cost *cost, struct err *err)
{
    char name[NAME_BYTES];
    struct buffer text = {0};
    TRY(file_name(of, name, err));
    cost_print(of, cost, &text);
    enum status status = cache_write(directory, name, &text, err);
    buffer_free(&text);
    return status;
}
