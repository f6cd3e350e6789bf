/* Which of two kinds of bf16 products a machine uses: it is measured once, kept, and part of the engine's kind. */
#include "harness.h"

#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/bf16_kind.h"
#include "engine/encoder.h"
#include "engine/kept.h"
#include "memory_model.h"

static const struct memory_shape untiled = {50, 40, 36, 3, 3, 70};

struct cache {
    char folder[40], file[400];
};

static struct cache open_cache(void)
{
    struct cache cache = {.folder = "/tmp/sluice-bf16-XXXXXX"};
    assert_non_null(mkdtemp(cache.folder));
    return cache;
}

static void close_cache(const struct cache *cache)
{
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", cache->folder);
    assert_int_equal(system(command), 0);
}

/* Finds the one file there. */
static void find_file(struct cache *cache)
{
    char pattern[64];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/bf16-*.txt", cache->folder);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    snprintf(cache->file, sizeof cache->file, "%s", found.gl_pathv[0]);
    globfree(&found);
}

/* Reads the file's text, from its times on, into `times`, and replaces them unless `other` is NULL. */
static void exchange_times(const struct cache *cache, const char *other, char times[80])
{
    struct buffer text = {0};
    struct err err;
    assert_int_equal(file_read(cache->file, 4096, &text, &err), STATUS_OK);
    char *at = strstr(text.data, "\nwide ");
    assert_non_null(at);
    snprintf(times, 80, "%s", at + 1);
    if (other) {
        FILE *file = fopen(cache->file, "w");
        assert_non_null(file);
        fprintf(file, "%.*s%s", (int)(at + 1 - text.data), text.data, other);
        assert_int_equal(fclose(file), 0);
    }
    buffer_free(&text);
}

TEST(the_kind_has_kernels)
{
    for (const struct instruction_set *set = instruction_sets; set->name != NULL; set++) {
        if (!set->runs_here()) { continue; }
        enum gemm_kind kind = bf16_kind(set, "");
        assert_true(kind == GEMM_BF16_WIDE || (kind == GEMM_BF16_DOT && set->kernels->gemm_bf16_dot != NULL));
    }
}

TEST(the_kept_times_decide)
{
    unsigned tried = 0;
    for (const struct instruction_set *set = instruction_sets; set->name != NULL; set++) {
        if (!set->runs_here() || set->kernels->gemm_bf16_dot == NULL) { continue; }
        struct cache cache = open_cache();
        char times[80], again[80];
        uint64_t wide, dot;
        enum gemm_kind kind = bf16_kind(set, cache.folder);
        find_file(&cache);
        exchange_times(&cache, NULL, times);
        assert_int_equal(sscanf(times, "wide %" SCNu64 " dot %" SCNu64 "\n", &wide, &dot), 2);
        assert_int_equal(kind, dot < wide ? GEMM_BF16_DOT : GEMM_BF16_WIDE);
        exchange_times(&cache, "wide 100 dot 200\n", times);
        assert_int_equal(bf16_kind(set, cache.folder), GEMM_BF16_WIDE);
        exchange_times(&cache, "wide 200 dot 100\n", times);
        assert_int_equal(bf16_kind(set, cache.folder), GEMM_BF16_DOT);
        exchange_times(&cache, "wide 200 dot 10", times); /* its end is missing */
        (void)bf16_kind(set, cache.folder);
        exchange_times(&cache, NULL, again);
        assert_string_not_equal(again, "wide 200 dot 10");
        assert_int_equal(again[strlen(again) - 1], '\n');
        close_cache(&cache);
        tried++;
    }
    if (tried == 0) { skip(); }
}

/* Opens a model that tiles do not compute, writes the engine's kind, and returns its first vector's first number. */
static void run_in_bf16(const struct cache *cache, char kind[ENGINE_KIND + 1], float *vector)
{
    struct model *model = memory_model(untiled, 1);
    const struct engine_options options = {.backend = "cpu", .precision = PRECISION_BF16, .cache_path = cache->folder};
    struct engine *engine;
    struct encoder *encoder;
    struct err err = {0};
    int32_t ids[] = {3, 1, 4, 1, 5};
    uint32_t start = 0, length = 5;
    const struct engine_batch batch = {
        .rows = 1, .extent = 5, .ids = ids, .start = &start, .length = &length, .output = vector};
    assert_int_equal(engine_open(model, &options, &engine, &err), STATUS_OK);
    assert_int_equal(encoder_open(engine, &encoder, &err), STATUS_OK);
    assert_int_equal(encoder_run(encoder, &batch, &err), STATUS_OK);
    engine_kind(engine, kind);
    encoder_close(encoder);
    engine_close(engine);
    memory_model_free(model);
}

TEST(an_engine_s_kind_tells_bits_apart)
{
    struct cache cache = open_cache();
    char times[80], kinds[3][ENGINE_KIND + 1];
    float vectors[3][36];
    run_in_bf16(&cache, kinds[0], vectors[0]);
    if (instruction_set_pick()->kernels->gemm_bf16_dot == NULL) {
        close_cache(&cache);
        skip();
    }
    find_file(&cache);
    exchange_times(&cache, "wide 100 dot 200\n", times);
    run_in_bf16(&cache, kinds[1], vectors[1]);
    exchange_times(&cache, "wide 200 dot 100\n", times);
    run_in_bf16(&cache, kinds[2], vectors[2]);
    assert_memory_not_equal(vectors[1], vectors[2], sizeof vectors[1]);
    assert_string_not_equal(kinds[1], kinds[2]);
    int same = strcmp(kinds[0], kinds[1]) == 0 ? 1 : 2; /* the measured one is one of them */
    assert_string_equal(kinds[0], kinds[same]);
    assert_memory_equal(vectors[0], vectors[same], sizeof vectors[0]);
    close_cache(&cache);
}
