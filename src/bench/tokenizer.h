/* `sluice bench tokenizer`: text to token ids on one core. */
#ifndef BENCH_TOKENIZER_H
#define BENCH_TOKENIZER_H

#include "bench/sheet.h"
#include "serve/config.h"

/* The command's own options. */
struct bench_tokenizer_options {
    char *input;             /* a file with a text on each line; NULL: made-up ones */
    int64_t short_tokens;    /* of the one short text */
    int64_t document_bytes;  /* of the long text … */
    int64_t document_tokens; /* … of which so many tokens are kept */
    int64_t round_ms;
    char *json;
};

/* Measures and fills the sheet. Errors: those of model_open, texts_open and file_read. */
MUST_CHECK enum status bench_tokenizer(const struct config *config, const struct bench_tokenizer_options *options,
                                       struct sheet *sheet, struct err *err);

#endif
