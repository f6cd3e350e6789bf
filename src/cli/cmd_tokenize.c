/* Prints a JSON array of token ids per input line: what the engine would get. */
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#include "base/buffer.h"
#include "bulk/input/stream.h"
#include "cli/command.h"
#include "daemon/config.h"
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

/* Writes a decimal number backwards from `end`, and returns its beginning. */
static char *put_number(char *end, uint32_t value)
{
    do {
        *--end = (char)('0' + value % 10);
    } while ((value /= 10) > 0);
    return end;
}

static void print_ids(const int32_t *ids, uint32_t count)
{
    putchar_unlocked('[');
    for (uint32_t i = 0; i < count; i++) {
        char digits[12];
        char *end = digits + sizeof digits, *begin = put_number(end, (uint32_t)ids[i]);
        if (i > 0) {
            putchar_unlocked(',');
        }
        fwrite_unlocked(begin, 1, (size_t)(end - begin), stdout);
    }
    putchar_unlocked(']');
    putchar_unlocked('\n');
}

/* Turns a line into at most model->max_tokens ids, as the daemon does: the model's prompt comes first. `scratch` is
 * kept between calls and freed by the caller. Shapes: ids [model->max_tokens] int32, written. Errors: those of
 * tokenizer_encode, STATUS_NO_MEMORY. */
static enum status encode_line(const struct model *model, const struct record *line, struct buffer *scratch,
                               int32_t *ids, uint32_t *count, struct err *err)
{
    const char *text = line->bytes;
    size_t length = line->length;
    enum status status = model_put_prompt(model, scratch, &text, &length, err);
    if (status != STATUS_OK) {
        return status;
    }
    bool truncated;
    return tokenizer_encode(model->tokenizer, text, length, model->max_tokens, ids, count, &truncated, err);
}

static enum status tokenize(const struct model *model, struct reader *reader, struct err *err)
{
    int32_t *ids = calloc(model->max_tokens, sizeof *ids);
    if (!ids) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for %u ids", model->max_tokens);
    }
    struct buffer scratch = {0};
    struct record line;
    uint32_t count;
    enum status status;
    while ((status = reader_text(reader, &line, err)) == STATUS_OK && line.bytes && !ferror(stdout)) {
        status = encode_line(model, &line, &scratch, ids, &count, err);
        if (status != STATUS_OK) {
            status = err_prefix(err, "%s line %llu", stream_name(reader->stream), (unsigned long long)line.line);
            break;
        }
        print_ids(ids, count);
    }
    buffer_free(&scratch);
    free(ids);
    return status;
}

static int run(struct invocation *invocation)
{
    const struct own *own = invocation->own;
    struct err err;
    struct model *model = NULL;
    struct reader reader;
    enum status status = config_model(&invocation->config, &model, &err);
    if (status != STATUS_OK) {
        return report(invocation, &err);
    }
    model_release_weights(model);
    status = reader_open(&reader, own->input, TEXT_MAX_BYTES, NULL, &err);
    if (status == STATUS_OK) {
        status = tokenize(model, &reader, &err);
        reader_close(&reader);
    }
    model_close(model);
    return status == STATUS_OK ? EX_OK : report(invocation, &err);
}

const struct subcommand command_tokenize = {
    .name = "tokenize",
    .bit = FOR_TOKENIZE,
    .summary = "Print the token ids of texts, one JSON array per line",
    .explanation = "Reads one text per line. The ids are those that the model gets: the prompt first, special tokens\n"
                   "included, cut at max_tokens.",
    .own = own_settings,
    .own_count = sizeof own_settings / sizeof own_settings[0],
    .own_size = sizeof(struct own),
    .run = run,
};
