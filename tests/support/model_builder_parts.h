/* Between the files of the model builder only. */
#ifndef TESTS_MODEL_BUILDER_PARTS_H
#define TESTS_MODEL_BUILDER_PARTS_H

#include <stdio.h>

#include "model_builder.h"

#define BUILDER_PATH_BYTES 1024

/* Ends the process with a message and errno. */
_Noreturn void builder_die(const char *what, const char *name);

/* Opens DIRECTORY/NAME for writing; ends it and checks that all was written. */
FILE *builder_create(const char *directory, const char *name);
void builder_finish(FILE *file, const char *name);

void builder_write_weights(const struct model_spec *spec, const char *directory);
void builder_write_tokenizer(const struct model_spec *spec, const char *directory); /* tokenizer.json and its config */
void builder_write_config(const struct model_spec *spec, const char *directory);
void builder_write_sentence_files(const struct model_spec *spec, const char *directory);

#endif
