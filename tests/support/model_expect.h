/* Expectations of the tests of model files: model_open opens a model, or refuses it and says why. */
#ifndef TESTS_MODEL_EXPECT_H
#define TESTS_MODEL_EXPECT_H

#include "harness.h"

#include "model/model.h"
#include "model_builder.h"

static inline struct model *expect_model(const char *directory, const struct model_options *options)
{
    struct model *model = NULL;
    struct err err = {0};
    if (model_open(directory, options, &model, &err) != STATUS_OK) { fail_msg("not opened: %s", err.message); }
    return model;
}

/* Expects a refusal whose message names the file and the field (or tensor, or other part). */
static inline void expect_refused(const char *directory, const struct model_options *options, enum status status,
                                  const char *file, const char *field)
{
    struct model *model = NULL;
    struct err err = {0};
    enum status got = model_open(directory, options, &model, &err);
    bool says = strstr(err.message, file) != NULL && strstr(err.message, field) != NULL;
    if (got != status || model != NULL || !says) {
        fail_msg("got %s \"%s\", expected %s with \"%s\" and \"%s\"", status_name(got), err.message,
                 status_name(status), file, field);
    }
}

/* Builds a model, edits one of its files, and expects it to be refused. */
static inline void expect_edit_refused(const struct model_spec *spec, const char *name, const char *from,
                                       const char *to, enum status status, const char *field)
{
    char *directory = model_build(spec);
    model_file_edit(directory, name, from, to);
    expect_refused(directory, NULL, status, name, field);
    model_build_remove(directory);
}

#endif
