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

static void print_head(const struct engine *engine, const struct model *model, struct buffer *out)
{
    buffer_format(out, "sluice cost 2\nversion %s\nbackend %s\ndevice %s\nprecision %s\n", SLUICE_VERSION,
                  engine_backend(engine), engine_device(engine), precision_name(engine_precision(engine)));
    buffer_format(out, "shape layers %" PRIu32 " hidden %" PRIu32 " heads %" PRIu32 " inner %" PRIu32,
                  model->layer_count, model->hidden, model->heads, model->intermediate_size);
    buffer_format(out, " tokens %" PRIu32 " pooling %s\n", model->max_tokens,
                  model->pooling == POOLING_CLS ? "cls" : "mean");
}

/* 17 digits are enough to read a number back as it was. */
static void print(const struct engine *engine, const struct model *model, const struct cost *cost, struct buffer *out)
{
    print_head(engine, model, out);
    buffer_format(out, "pass %.17g strip %.17g fade %.17g\nterms %.17g %.17g %.17g\n", cost->device.pass,
                  cost->device.strip, cost->device.fade, cost->terms[0], cost->terms[1], cost->terms[2]);
    if (buffer_ok(out))
        buffer_format(out, "checksum %016" PRIx64 "\n", (uint64_t)XXH64(out->data, out->length, 0));
}

/* One file for each head, so that they do not push each other out. */
static enum status file_name(const struct engine *engine, const struct model *model, char out[NAME_BYTES],
                             struct err *err)
{
    struct buffer head = {0};
    print_head(engine, model, &head);
    enum status status = STATUS_OK;
    if (buffer_ok(&head))
        snprintf(out, NAME_BYTES, "cost-%016" PRIx64 ".txt", (uint64_t)XXH64(head.data, head.length, 0));
    else
        status = err_set(err, STATUS_NO_MEMORY, "no memory for the name of a file");
    buffer_free(&head);
    return status;
}

static bool sound(const struct cost *cost)
{
    const struct cost_device *device = &cost->device;
    const double numbers[] = {device->pass,   device->strip,  device->fade,
                              cost->terms[0], cost->terms[1], cost->terms[2]};
    bool sound = cost_known(cost);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        sound &= isfinite(numbers[i]) && numbers[i] >= 0;
    return sound;
}

/* `text` ends with a NUL. */
static enum status parse(const struct buffer *text, const struct engine *engine, const struct model *model,
                         const char *path, struct cost *out, struct err *err)
{
    double terms[COST_TERMS];
    struct cost_device device;
    struct buffer same = {0};
    struct cost cost = cost_from(0, 0, 0);
    const char *at = strstr(text->data, "\npass ");
    if (at != NULL && sscanf(at, "\npass %lf strip %lf fade %lf\nterms %lf %lf %lf", &device.pass, &device.strip,
                             &device.fade, &terms[0], &terms[1], &terms[2]) == 6) {
        cost = cost_from(terms[0], terms[1], terms[2]);
        cost.device = device;
    }
    bool good = sound(&cost);
    if (good)
        print(engine, model, &cost, &same);
    bool complete = buffer_ok(&same);
    good = good && complete && same.length == text->length && memcmp(same.data, text->data, same.length) == 0;
    buffer_free(&same);
    if (good)
        *out = cost;
    if (!complete)
        return err_set(err, STATUS_NO_MEMORY, "no memory to read %s", path);
    return good ? STATUS_OK : err_set(err, STATUS_BAD_INPUT, "%s is damaged", path);
}

enum status cost_recall(const char *directory, const struct engine *engine, const struct model *model, struct cost *out,
                        struct err *err)
{
    char name[NAME_BYTES], path[CACHE_PATH_BYTES];
    struct buffer text = {0};
    *out = cost_from(0, 0, 0);
    TRY(file_name(engine, model, name, err));
    TRY(cache_path(directory, name, path, err));
    enum status status = file_read(path, FILE_MAX_BYTES, &text, err);
    if (status == STATUS_OK)
        status = parse(&text, engine, model, path, out, err);
    buffer_free(&text);
    return status;
}

enum status cost_remember(const char *directory, const struct engine *engine, const struct model *model,
                          const struct cost *cost, struct err *err)
{
    char name[NAME_BYTES];
    struct buffer text = {0};
    TRY(file_name(engine, model, name, err));
    print(engine, model, cost, &text);
    enum status status = cache_write(directory, name, &text, err);
    buffer_free(&text);
    return status;
}
