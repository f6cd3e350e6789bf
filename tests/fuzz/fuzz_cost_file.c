/* The file of a calibration. The bytes are read as they are, and again as lines between the right head and the right
 * checksum, which no mutation would find: an accepted cost is known, has no senseless number, and is written as it was
 * read. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "engine/cost.h"
#include "fuzz.h"

static const struct model model = {.vocabulary = 100,
                                   .max_tokens = 16,
                                   .layer_count = 1,
                                   .hidden = 24,
                                   .heads = 2,
                                   .intermediate_size = 48,
                                   .dim = 24};

static struct cost_source source(void)
{
    static struct engine *engine;
    const struct engine_options options = {.backend = "null"};
    if (engine == NULL && engine_open(&model, &options, &engine, NULL) != STATUS_OK) { abort(); }
    return (struct cost_source){engine, &model, 2};
}

static void read_text(const char *text, size_t length)
{
    const struct cost_source of = source();
    struct buffer again = {0};
    struct err err = {0};
    struct cost cost;
    char *copy = malloc(length + 1); /* so that a sanitizer sees a read beyond it */
    memcpy(copy, text, length);
    copy[length] = '\0';
    if (cost_parse(copy, length, &of, &cost, &err) != STATUS_OK) {
        FUZZ_CHECK(err.message[0] != '\0' && !cost_known(&cost));
    } else {
        cost_print(&of, &cost, &again);
        FUZZ_CHECK(buffer_ok(&again) && again.length == length && memcmp(again.data, text, length) == 0);
        double ns = cost_predict_ns(&cost, (struct cost_shape){40, 800, false});
        FUZZ_CHECK(cost_known(&cost) && ns >= 0 && !isnan(ns));
    }
    buffer_free(&again);
    free(copy);
}

/* Prints the lines before the numbers. */
static void print_head(struct buffer *out)
{
    const struct cost_source of = source();
    const struct cost any = cost_from(1, 1, 1);
    struct buffer whole = {0};
    cost_print(&of, &any, &whole);
    FUZZ_CHECK(buffer_ok(&whole));
    buffer_append(out, whole.data, (size_t)(strstr(whole.data, "\nterms ") + 1 - whole.data));
    buffer_free(&whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buffer text = {0};
    read_text((const char *)data, size);
    print_head(&text);
    buffer_append(&text, data, size);
    buffer_format(&text, "checksum %016" PRIx64 "\n", (uint64_t)XXH64(text.data, text.length, 0));
    FUZZ_CHECK(buffer_ok(&text));
    read_text(text.data, text.length);
    buffer_free(&text);
    return 0;
}
