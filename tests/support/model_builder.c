/* The specs, the directory as a whole, and single files of it. The parts are written by the files beside this one. */
#include "model_builder.h"

#include <assert.h>
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model_builder_parts.h"

void builder_die(const char *what, const char *name)
{
    fprintf(stderr, "model_builder: %s %s: %s\n", what, name, strerror(errno));
    abort();
}

FILE *builder_create(const char *directory, const char *name)
{
    char path[BUILDER_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        builder_die("cannot write", path);
    return file;
}

void builder_finish(FILE *file, const char *name)
{
    if (ferror(file) || fclose(file) != 0)
        builder_die("cannot write", name);
}

struct model_spec model_spec_tiny(void)
{
    return (struct model_spec){
        .seed = 1,
        .generation = GENERATION_CLASSIC,
        .vocabulary = 512,
        .positions = 64,
        .token_types = 2,
        .hidden = 32,
        .layers = 2,
        .heads = 4,
        .intermediate = 64,
        .hidden_act = "gelu",
        .scale = 0.05f,
        .pooling = POOLING_MEAN,
        .normalize = true,
        .prefix = "",
    };
}

static struct model_spec real_shape(uint32_t hidden, uint32_t layers, uint32_t heads)
{
    struct model_spec spec = model_spec_tiny();
    spec.vocabulary = 30522;
    spec.positions = 512;
    spec.hidden = hidden;
    spec.layers = layers;
    spec.heads = heads;
    spec.intermediate = 4 * hidden;
    return spec;
}

struct model_spec model_spec_minilm(void)
{
    struct model_spec spec = real_shape(384, 6, 12);
    spec.max_tokens = 256;
    return spec;
}

struct model_spec model_spec_bge_small(void)
{
    struct model_spec spec = real_shape(384, 12, 12);
    spec.pooling = POOLING_CLS;
    return spec;
}

struct model_spec model_spec_bert_base(void)
{
    return real_shape(768, 12, 12);
}

void model_build_into(const struct model_spec *spec, const char *directory)
{
    assert(spec->vocabulary >= MODEL_SPEC_MIN_VOCABULARY && spec->layers <= 64);
    builder_write_config(spec, directory);
    builder_write_weights(spec, directory);
    builder_write_tokenizer(spec, directory);
    if (spec->generation != GENERATION_BARE)
        builder_write_sentence_files(spec, directory);
}

char *model_build(const struct model_spec *spec)
{
    const char *base = getenv("TMPDIR");
    char path[BUILDER_PATH_BYTES];
    snprintf(path, sizeof path, "%s/sluice-model-XXXXXX", base != NULL ? base : "/tmp");
    if (mkdtemp(path) == NULL)
        builder_die("cannot make", path);
    model_build_into(spec, path);
    char *directory = strdup(path);
    if (directory == NULL)
        builder_die("no memory for", path);
    return directory;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

void model_build_remove(char *directory)
{
    if (nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0)
        builder_die("cannot remove", directory);
    free(directory);
}

void model_file_write(const char *directory, const char *name, const char *text)
{
    FILE *file = builder_create(directory, name);
    fputs(text, file);
    builder_finish(file, name);
}

void model_file_remove(const char *directory, const char *name)
{
    char path[BUILDER_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    if (remove(path) != 0)
        builder_die("cannot remove", path);
}

char *model_file_read(const char *directory, const char *name, size_t *length)
{
    char path[BUILDER_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "rb");
    struct stat info;
    if (file == NULL || fstat(fileno(file), &info) != 0)
        builder_die("cannot read", path);
    char *text = malloc((size_t)info.st_size + 1);
    if (text == NULL || fread(text, 1, (size_t)info.st_size, file) != (size_t)info.st_size)
        builder_die("cannot read", path);
    text[info.st_size] = '\0';
    if (length != NULL)
        *length = (size_t)info.st_size;
    fclose(file);
    return text;
}

void model_file_edit(const char *directory, const char *name, const char *from, const char *to)
{
    char *text = model_file_read(directory, name, NULL);
    char *at = strstr(text, from);
    if (at == NULL || strstr(at + 1, from) != NULL) {
        fprintf(stderr, "model_builder: %s must have \"%s\" exactly once\n", name, from);
        abort();
    }
    FILE *file = builder_create(directory, name);
    fprintf(file, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    builder_finish(file, name);
    free(text);
}
