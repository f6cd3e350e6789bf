/* What sentence-transformers puts around an encoder: the chain of modules, pooling, normalisation, the token limit and
 * the prompts. Both generations of its files are read: before 5.4 and since. */
#ifndef MODEL_SENTENCE_TRANSFORMERS_H
#define MODEL_SENTENCE_TRANSFORMERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "model/model.h"

/* What the files say, with the user's options applied. */
struct sentence_config {
    char *folder;         /* of the encoder's files, relative to the directory: "" or "0_Transformer/" */
    char *pooling_folder; /* of the pooling's file, for messages: "1_Pooling/", or NULL */
    enum pooling pooling; /* POOLING_UNSET where the files name none */
    uint32_t width;       /* what the pooling file says of the encoder's width, or 0 */
    bool normalize;
    bool include_prompt;
    bool lower_case;              /* do_lower_case was asked for */
    uint32_t max_tokens;          /* max_seq_length, or 0 */
    char *prompt;                 /* the chosen prompt's text; never NULL */
    struct model_prompt *prompts; /* [prompt_count], all of them */
    uint32_t prompt_count;
};

/* Reads modules.json and the files it leads to. Without modules.json, `options->pooling` must be given.
 * Owns: the caller ends `*out` with sentence_config_free, also after an error.
 * Errors: STATUS_NOT_FOUND (a file or a named prompt), STATUS_BAD_INPUT, STATUS_UNSUPPORTED (a module or field that is
 * not known here), STATUS_NO_MEMORY; the message names file and field. Thread: one at a time (cJSON). */
MUST_CHECK enum status sentence_config_read(const char *directory, const struct model_options *options,
                                            struct sentence_config *out, struct err *err);

/* Frees what it holds and leaves an empty one. */
void sentence_config_free(struct sentence_config *config);

/* Frees a list of prompts: names, texts and the array. Shapes: prompts [count]. */
void prompts_free(struct model_prompt *prompts, uint32_t count);

/* "mean" or "cls". */
const char *pooling_name(enum pooling pooling);

#endif
