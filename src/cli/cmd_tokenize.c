/* Prints a JSON array of token ids per input line, as the engine would get them. */
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#include "bulk/input/stream.h"
#include "cli/command.h"
#include "config/config.h"
#include "model/model.h"

enum { TEXT_MAX_BYTES = 1 << 28 };

struct own {
    char *input;
};

static const struct setting own_settings[] = {
    {.key = "input",
     .type = SETTING_TEXT,
     .offset = offsetof(struct own, input),
     .fallback = "-",
     .value = "FILE",
     .help = "one text per line; - is standard input"},
};

static enum status tokenize_lines(const struct model *model, struct reader *reader, struct err *err)
{
    int32_t *ids = calloc(model->max_tokens, sizeof *ids);
    if (!ids) { return err_set(err, STATUS_NO_MEMORY, "no memory for %u ids", model->max_tokens); }
    struct record line;
    uint32_t count;
    bool truncated;
    enum status status;
    while ((status = reader_text(reader, &line, err)) == STATUS_OK && line.bytes && !ferror(stdout)) {
        status = model_encode(model, line.bytes, line.length, model->max_tokens, ids, &count, &truncated, err);
        if (status != STATUS_OK) {
            status = err_prefix(err, "%s line %llu", stream_name(reader->stream), (unsigned long long)line.line);
            break;
        }
        for (uint32_t i = 0; i < count; i++) { printf("%c%d", i == 0 ? '[' : ',', ids[i]); }
        puts(count == 0 ? "[]" : "]");
    }
    free(ids);
    return status;
}

static int run_tokenize(struct invocation *invocation)
{
    const struct own *own = invocation->own;
    struct err err;
    struct model *model = NULL;
    struct reader reader;
    enum status status = config_model(&invocation->config, &model, &err);
    if (status != STATUS_OK) { return print_error(invocation, &err); }
    model_release_weights(model);
    status = reader_open(&reader, own->input, TEXT_MAX_BYTES, NULL, &err);
    if (status == STATUS_OK) {
        status = tokenize_lines(model, &reader, &err);
        reader_close(&reader);
    }
    model_close(model);
    return status == STATUS_OK ? EX_OK : print_error(invocation, &err);
}

const struct subcommand command_tokenize = {
    .name = "tokenize",
    .bit = FOR_TOKENIZE,
    .summary = "Print the token ids of texts, one JSON array per line",
    .explanation = "Reads one text per line. The ids are those that the model gets: the prompt first, special tokens\n"
                   "included, cut at max_tokens.",
    OWN_OPTIONS(own_settings, struct own),
    .run = run_tokenize,
};
