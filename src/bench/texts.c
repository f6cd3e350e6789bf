#include "bench/texts.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/random.h"
#include "base/utf8.h"

enum { MIXED_LEAST = 6, MIXED_MOST = 206, WORDS_LEAST = 8, ENCODE_IDS = 64, FILE_MOST = 1 << 30 };

static const char *const common[] = {
    "the",   "of",    "and",   "to",    "in",    "is",   "was",  "for",  "on",    "with",  "as",    "by",
    "at",    "from",  "that",  "not",   "this",  "have", "be",   "or",   "you",   "which", "one",   "all",
    "there", "their", "we",    "has",   "when",  "who",  "will", "more", "no",    "if",    "out",   "so",
    "what",  "up",    "about", "into",  "than",  "them", "can",  "only", "other", "new",   "some",  "time",
    "two",   "may",   "then",  "do",    "first", "any",  "my",   "now",  "such",  "like",  "over",  "me",
    "even",  "most",  "made",  "after", "also",  "did",  "many", "must", "where", "much",  "your",  "way",
    "well",  "down",  "each",  "just",  "those", "how",  "too",  "good", "very",  "make",  "world", "still",
    "see",   "work",  "long",  "get",   "here",  "life", "same", "last", "great", "old",   "year",  "off",
};

_Static_assert(sizeof common / sizeof common[0] <= TEXTS_WORDS, "room for all words");

static enum status count_tokens(const struct model *model, const char *text, uint32_t *count, struct err *err)
{
    int32_t ids[ENCODE_IDS];
    bool truncated;
    return model_encode(model, text, strlen(text), ENCODE_IDS, ids, count, &truncated, err);
}

enum status texts_open(const struct model *model, uint32_t tokens, struct texts *out, struct err *err)
{
    *out = (struct texts){.tokens = tokens};
    TRY(count_tokens(model, "", &out->around, err));
    for (size_t i = 0; i < sizeof common / sizeof common[0]; i++) {
        uint32_t with;
        TRY(count_tokens(model, common[i], &with, err));
        if (with == out->around + 1) { out->words[out->word_count++] = common[i]; }
    }
    if (out->word_count < WORDS_LEAST) {
        return err_set(err, STATUS_BAD_INPUT,
                       "texts cannot be made up: %s has too few of the most common English words", model->name);
    }
    out->longest = model->max_tokens < MIXED_MOST ? model->max_tokens : MIXED_MOST;
    uint32_t least = tokens == 0 ? MIXED_LEAST : tokens, most = tokens == 0 ? out->longest : tokens;
    if (least <= out->around || most > model->max_tokens) {
        return err_set(err, STATUS_BAD_INPUT, "no text of %s has %u tokens: %u stand around each, and %u are the most",
                       model->name, least, out->around, model->max_tokens);
    }
    return STATUS_OK;
}

enum status texts_read(const char *path, struct texts *out, struct err *err)
{
    *out = (struct texts){0};
    TRY(file_read(path, FILE_MOST, &out->file, err));
    if (out->file.length > 0 && !utf8_valid(out->file.data, out->file.length)) {
        return err_set(err, STATUS_BAD_INPUT, "%s is not UTF-8", path);
    }
    size_t most = 1;
    for (size_t i = 0; i < out->file.length; i++) { most += out->file.data[i] == '\n'; }
    out->lines = malloc(most * sizeof *out->lines);
    if (!out->lines) { return err_set(err, STATUS_NO_MEMORY, "no memory for %zu lines", most); }
    char *rest = out->file.data;
    for (char *line = out->file.length == 0 ? NULL : strtok_r(rest, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        out->lines[out->line_count++] = line;
    }
    if (out->line_count == 0) { return err_set(err, STATUS_BAD_INPUT, "%s has no text", path); }
    return STATUS_OK;
}

void texts_close(struct texts *texts)
{
    buffer_free(&texts->file);
    free(texts->lines);
}

void texts_put(const struct texts *texts, uint64_t number, struct buffer *out)
{
    out->length = 0;
    if (texts->lines) {
        buffer_string(out, texts->lines[number % texts->line_count]);
        return;
    }
    uint64_t state = number;
    uint32_t tokens = texts->tokens;
    if (tokens == 0) {
        double share = random_share(&state);
        tokens = MIXED_LEAST + (uint32_t)(share * share * share * (texts->longest - MIXED_LEAST + 1));
    }
    for (uint32_t i = texts->around; i < tokens; i++) {
        buffer_string(out, i == texts->around ? "" : " ");
        buffer_string(out, texts->words[random_next(&state) % texts->word_count]);
    }
}
