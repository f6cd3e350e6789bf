/* Expectations of the tests of model files: model_open opens a model, or refuses it and says why. */
#ifndef TESTS_MODEL_EXPECT_H
#define TESTS_MODEL_EXPECT_H

#include "harness.h"

#include "model/model.h"
#include "model_builder.h"
#include "quoted.h"

/* The directory of the case that runs, and the model that was opened last. */
static struct {
    char *directory;
    struct model *model;
} made;

static inline int end_made(void **state)
{
    (void)state;
    model_close(made.model);
    made.model = NULL;
    if (made.directory) { model_build_remove(made.directory); }
    made.directory = NULL;
    return 0;
}

/* Builds a model in place of the one before. */
static inline void build(const struct model_spec *spec)
{
    (void)end_made(NULL);
    made.directory = model_build(spec);
}

static inline int build_tiny(void **state)
{
    (void)state;
    struct model_spec spec = model_spec_tiny();
    build(&spec);
    return 0;
}

/* A case with the directory of a tiny model. */
#define MODEL_TEST(name) TEST_WITH(name, build_tiny, end_made)

static inline void put_file(const char *name, const char *text)
{
    model_file_write(made.directory, name, quoted(text));
}

static inline void edit_file(const char *name, const char *from, const char *to)
{
    model_file_edit(made.directory, name, quoted(from), quoted(to));
}

static inline void drop_file(const char *name)
{
    model_file_remove(made.directory, name);
}

/* Expects the model at a path to open; it is closed with the case, or when the next one opens. */
static inline struct model *opened_at(const char *path, const struct model_options *options)
{
    struct err err = {0};
    model_close(made.model);
    made.model = NULL;
    if (model_open(path, options, &made.model, &err) != STATUS_OK) { fail_msg("not opened: %s", err.message); }
    return made.model;
}

static inline struct model *opened(const struct model_options *options)
{
    return opened_at(made.directory, options);
}

static inline int open_tiny(void **state)
{
    (void)build_tiny(state);
    (void)opened(NULL);
    return 0;
}

/* A case with a tiny model that is open: made.model. */
#define OPEN_MODEL_TEST(name) TEST_WITH(name, open_tiny, end_made)

static inline bool is_in(const char *part, const char *message)
{
    return strstr(message, part) != NULL || strstr(message, quoted(part)) != NULL;
}

/* Expects a refusal whose message names the file and the field (or tensor, or other part). */
static inline void refused_at(const char *path, const struct model_options *options, enum status status,
                              const char *file, const char *field)
{
    struct model *model = NULL;
    struct err err = {0};
    enum status got = model_open(path, options, &model, &err);
    bool says = is_in(file, err.message) && is_in(field, err.message);
    if (got != status || model != NULL || !says) {
        fail_msg("got %s \"%s\", expected %s with \"%s\" and \"%s\"", status_name(got), err.message,
                 status_name(status), file, field);
    }
}

static inline void refused(const struct model_options *options, enum status status, const char *file, const char *field)
{
    refused_at(made.directory, options, status, file, field);
}

/* An edit of a model's file, and why the model is refused then. */
struct edit {
    const char *file, *from, *to; /* from: NULL replaces the whole file */
    enum status status;
    const char *says;
};

/* Builds a model for each edit, and expects it to be refused with the name of the file. */
#define EDITS_REFUSED(spec, ...)                                                                                       \
    edits_refused(spec, (const struct edit[]){__VA_ARGS__},                                                            \
                  sizeof((const struct edit[]){__VA_ARGS__}) / sizeof(struct edit))

static inline void edits_refused(const struct model_spec *spec, const struct edit *edits, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        build(spec);
        if (edits[i].from) {
            edit_file(edits[i].file, edits[i].from, edits[i].to);
        } else {
            put_file(edits[i].file, edits[i].to);
        }
        refused(NULL, edits[i].status, edits[i].file, edits[i].says);
    }
}

#endif
