/* Everything that sentence-transformers puts around an encoder: the chain of modules, pooling, normalisation, the token
 * limit and the prompts. Both generations of its files are read: before 5.4 and since. */
#ifndef MODEL_SENTENCE_TRANSFORMERS_H
#define MODEL_SENTENCE_TRANSFORMERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "model/model.h"

/* Settings of the files that are not kept in struct model. */
struct sentence_config {
    char *folder;         /* of the encoder's files, relative to the directory: "" or "0_Transformer/" */
    char *pooling_folder; /* of the pooling's file, for messages: "1_Pooling/", or NULL */
    uint32_t width;       /* the encoder's width according to the pooling file, or 0 */
    bool lower_case;      /* do_lower_case is set */
    bool classifier;      /* the directory is a sequence-classification model, and may be opened as one */
    const char
        *transformer_file; /* the encoder's own, sentence_bert_config.json or a related file; NULL: none has content */
    bool logits;           /* that file says that the encoder ends in such a head */
    uint32_t max_tokens;   /* its max_seq_length, or 0 */
};

/* Reads modules.json and the files it leads to, in model->directory, and applies the user's options. Without
 * modules.json, `options->pooling` must be given, or the model must be a classifier. Fills pooling, normalisation and
 * prompts of `model`, and head.score if a file gives it. Owns: the caller ends `*out` with sentence_config_free, also
 * after an error. Errors: STATUS_NOT_FOUND (a file or a named prompt), STATUS_BAD_INPUT, STATUS_UNSUPPORTED (a module
 * or field that is not known here), STATUS_NO_MEMORY; the message names file and field. Thread: one at a time (cJSON).
 */
MUST_CHECK enum status sentence_config_read(struct model *model, const struct model_options *options,
                                            struct sentence_config *out, struct err *err);

/* Frees its contents and leaves an empty one. */
void sentence_config_free(struct sentence_config *config);

/* The name in pooling_mode, or "unset". */
const char *pooling_name(enum pooling pooling);

/* The class of a module in sentence-transformers. */
const char *module_name(enum module_kind kind);

#endif
