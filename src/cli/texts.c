#include "cli/texts.h"

enum status texts_encode(const struct model *model, const struct line *line, struct buffer *scratch, int32_t *ids,
                         uint32_t *count, struct err *err)
{
    const char *text = line->text;
    size_t length = line->length;
    if (model->prompt != NULL && model->prompt[0] != '\0') {
        scratch->length = 0;
        buffer_string(scratch, model->prompt);
        buffer_append(scratch, text, length);
        if (!buffer_ok(scratch))
            return err_set(err, STATUS_NO_MEMORY, "no memory for a text of %zu bytes", length);
        text = scratch->data;
        length = scratch->length;
    }
    bool truncated;
    return tokenizer_encode(model->tokenizer, text, length, model->max_tokens, ids, count, &truncated, err);
}
