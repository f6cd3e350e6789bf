/* The weights of a model directory: one safetensors file or several, with each tensor found under one of the names that
 * exporters give it. */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H

#include <stdbool.h>

#include "base/err.h"
#include "model/model.h"
#include "model/safetensors.h"

#define WEIGHTS_MAX_SHARDS 256

/* The files that were read. Zero-initialise for none. */
struct weights {
    struct safetensors *files; /* [count] */
    char **names;              /* [count], relative to the model's directory */
    size_t count;
    size_t encoder_files; /* the first ones, the encoder's; the others are modules', FOLDER/model.safetensors */
    bool borrowed;        /* entries and names belong to another struct, which is closed later */
};

/* Reads DIRECTORY/FOLDERmodel.safetensors, else the shards that DIRECTORY/FOLDERmodel.safetensors.index.json lists.
 * `folder` is "" or ends with a slash.
 * Owns: the caller ends `*out` with weights_close, also after an error. Errors: those of safetensors_open; also
 * STATUS_BAD_INPUT when index and shards disagree. Thread: one at a time (cJSON). */
MUST_CHECK enum status weights_open(const char *directory, const char *folder, struct weights *out, struct err *err);

/* Also reads DIRECTORY/FOLDER/model.safetensors of a module of sentence-transformers. `module` is the name of its
 * tensors, FOLDER/PART. Owns, Errors and Thread: as weights_open. */
MUST_CHECK enum status weights_open_module(const char *directory, const char *module, struct weights *out,
                                           struct err *err);

/* Frees the files and leaves an empty struct. */
void weights_close(struct weights *weights);

/* Reads the bytes of open weights again, from the same files below `directory`; their headers are not read, so the
 * caller must check that the weights are the same.
 * Owns: the caller ends `*out` with weights_close before `weights`, also after an error. Errors: STATUS_BAD_INPUT (a
 * file of another size), STATUS_NOT_FOUND, STATUS_IO, STATUS_NO_MEMORY. Thread: any. */
MUST_CHECK enum status weights_read_again(const struct weights *weights, const char *directory, struct weights *out,
                                          struct err *err);

/* Frees the tensors' bytes and keeps the names and shapes. */
void weights_release(struct weights *weights);

/* Points every tensor of `model`, whose sizes and `layers` are set, into the weights.
 * Errors: STATUS_BAD_INPUT (missing, present twice, or of another shape), STATUS_UNSUPPORTED (a dtype that is not f32,
 * f16 or bf16, or a tensor that this architecture does not have); the message names file and tensor. STATUS_NO_MEMORY.
 */
MUST_CHECK enum status weights_bind(const struct weights *weights, struct model *model, struct err *err);

/* Receives one tensor of the files: its canonical name, its place in the model (its rows in `count` equal parts, most
 * often one), and the shape that follows from the model's sizes. */
typedef void weights_visitor(void *context, const char *name, struct tensor *const *parts, uint32_t count,
                             uint32_t rank, uint64_t rows, uint64_t columns);

/* Calls `visit` for every tensor of the model, always in the same order: binding and hashing depend on it. */
void weights_visit(struct model *model, weights_visitor *visit, void *context);

#endif
