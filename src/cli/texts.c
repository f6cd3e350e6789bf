#include "cli/texts.h"

enum status texts_encode(const struct model *model, const struct line *line, struct buffer *scratch, int32_t *ids,
                         uint32_t *count, struct err *err)
{
    const char *text = line->text;
    size_t length = line->length;
    enum status status = model_put_prompt(model, scratch, &text, &length, err);
    if (status != STATUS_OK)
        return status;
    bool truncated;
    return tokenizer_encode(model->tokenizer, text, length, model->max_tokens, ids, count, &truncated, err);
}
