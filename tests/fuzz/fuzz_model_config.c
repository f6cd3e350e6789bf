/* Any text in place of one of a model's JSON files: the model is refused, or its description of itself is consistent.
 * An input is the file's name on the first line, followed by its new content. */
#include <string.h>

#include "fuzz.h"
#include "model_builder.h"

static const char *const names[] = {
    "config.json",
    "modules.json",
    "1_Pooling/config.json",
    "2_Normalize/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "tokenizer_config.json",
    "model.safetensors.index.json",
};

static char *directory; /* one model for the whole run */

static void remove_directory(void)
{
    model_build_remove(directory);
}

static void build_directory(void)
{
    struct model_spec spec = model_spec_tiny();
    spec.generation = GENERATION_CURRENT;
    spec.vocabulary = MODEL_SPEC_MIN_VOCABULARY;
    spec.hidden = 8;
    spec.intermediate = 16;
    spec.layers = 1;
    spec.heads = 2;
    spec.shards = 2;
    directory = model_build(&spec);
    atexit(remove_directory);
}

static void check_model(const struct model *model)
{
    FUZZ_CHECK(model->max_tokens > 0 && model->max_tokens <= model->positions - model->position_offset);
    FUZZ_CHECK(model->position_offset < model->positions);
    FUZZ_CHECK(model->hidden % model->heads == 0 && model->dim > 0);
    FUZZ_CHECK(model->pooling != POOLING_UNSET && model->prompt != NULL && strlen(model->id) == 32);
}

/* A refusal names a file, or the limit that has none. */
static void check_refusal(enum status status, const struct err *err)
{
    FUZZ_CHECK(err->status == status);
    FUZZ_CHECK(strstr(err->message, ".json") != NULL || strstr(err->message, ".safetensors") != NULL ||
               strstr(err->message, "max_tokens") != NULL);
}

static void open_model(void)
{
    struct model *model;
    struct err err = {0};
    enum status status = model_open(directory, NULL, &model, &err);
    FUZZ_CHECK((status == STATUS_OK) == (model != NULL));
    if (status == STATUS_OK) {
        check_model(model);
    } else {
        check_refusal(status, &err);
    }
    model_close(model);
}

static void replace(const char *name, const uint8_t *text, size_t size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    FUZZ_CHECK(file != NULL && fwrite(text, 1, size, file) == size && fclose(file) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (directory == NULL) { build_directory(); }
    const uint8_t *line = memchr(data, '\n', size);
    if (line == NULL) { return 0; }
    size_t length = (size_t)(line - data);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i]) != length || memcmp(names[i], data, length) != 0) { continue; }
        size_t kept_size;
        char *kept = model_file_read(directory, names[i], &kept_size);
        replace(names[i], line + 1, size - length - 1);
        open_model();
        replace(names[i], (const uint8_t *)kept, kept_size);
        free(kept);
    }
    return 0;
}
