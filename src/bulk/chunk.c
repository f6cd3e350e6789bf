/* A text is cut into words, each with its number of tokens and whether a sentence ends with it; chunks are runs of
 * words.
 *
 * That the tokens of words add up to those of their run is true where the tokenizer splits at white space first, as
 * BERT's does; any other one would have its chunks truncated at the model's limit as all texts are. */
#include "bulk/chunk.h"

#include <stdlib.h>
#include <string.h>

struct word {
    size_t begin, end;
    uint32_t tokens;
    bool ends_sentence;
};

struct cutter {
    const struct model *model;
    const char *text;
    size_t length;
    uint32_t budget, overlap; /* tokens of text */
    uint32_t special;         /* tokens of an empty text */
    struct buffer words;      /* struct word */
    struct buffer *ids;
};

enum status chunking_parse(const char *text, struct chunking *out, struct err *err)
{
    *out = (struct chunking){0};
    for (const char *at = text; *at != '\0';) {
        size_t length = strcspn(at, ",");
        char *end = NULL;
        unsigned long number = 0;
        bool tokens = strncmp(at, "tokens:", 7) == 0, overlap = strncmp(at, "overlap:", 8) == 0;
        if (tokens || overlap)
            number = strtoul(at + (tokens ? 7 : 8), &end, 10);
        bool mean = length == 4 && strncmp(at, "mean", 4) == 0;
        if (!mean && (end != at + length || number > 1u << 20 || at[length - 1] == ':'))
            return err_set(err, STATUS_BAD_INPUT, "--chunk: \"%.*s\" is none of tokens:N, overlap:N, mean",
                           (int)(length < 80 ? length : 80), at);
        out->mean = out->mean || mean;
        out->tokens = tokens ? (uint32_t)number : out->tokens;
        out->overlap = overlap ? (uint32_t)number : out->overlap;
        at += length + (at[length] == ',');
    }
    if (out->tokens == 0)
        return err_set(err, STATUS_BAD_INPUT, "--chunk needs tokens:N, for example tokens:256,overlap:32");
    if (out->overlap >= out->tokens)
        return err_set(err, STATUS_BAD_INPUT, "--chunk: an overlap of %u leaves nothing of %u tokens", out->overlap,
                       out->tokens);
    return STATUS_OK;
}

static enum status count(struct cutter *cutter, const char *text, size_t length, uint32_t *out, struct err *err)
{
    const struct tokenizer *tokenizer = cutter->model->tokenizer;
    size_t bound = tokenizer_bound(tokenizer, length);
    uint32_t most = bound < UINT32_MAX ? (uint32_t)bound : UINT32_MAX;
    bool truncated;
    cutter->ids->length = 0;
    char *ids = buffer_reserve(cutter->ids, most * sizeof(int32_t));
    if (ids == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory to cut a text of %zu bytes", length);
    return tokenizer_encode(tokenizer, text, length, most, (int32_t *)(void *)ids, out, &truncated, err);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

/* The full stops of Chinese and Japanese, behind which no space stands: U+3002, U+FF01, U+FF1F. */
static bool is_wide_stop(const char *text, size_t left)
{
    return left >= 3 && (memcmp(text, "\xe3\x80\x82", 3) == 0 || memcmp(text, "\xef\xbc\x81", 3) == 0 ||
                         memcmp(text, "\xef\xbc\x9f", 3) == 0);
}

/* Whether a word ends a sentence: a stop, perhaps with quotes or brackets behind it; or an empty line follows. */
static bool ends_sentence(const struct cutter *cutter, size_t begin, size_t end)
{
    const char *text = cutter->text;
    unsigned feeds = 0;
    for (size_t at = end; at < cutter->length && is_space(text[at]); at++)
        feeds += text[at] == '\n';
    while (end > begin && strchr("\"')]}", text[end - 1]) != NULL)
        end--;
    bool stop = end > begin && strchr(".!?", text[end - 1]) != NULL;
    return stop || feeds >= 2 || (end - begin >= 3 && is_wide_stop(text + end - 3, 3));
}

/* Adds a run without space; one that is too long for a chunk in halves. */
static enum status add_word(struct cutter *cutter, size_t begin, size_t end, struct err *err)
{
    struct word word = {.begin = begin, .end = end};
    TRY(count(cutter, cutter->text + begin, end - begin, &word.tokens, err));
    word.tokens = word.tokens > cutter->special ? word.tokens - cutter->special : 0;
    size_t middle = begin + (end - begin) / 2;
    while (middle > begin && ((unsigned char)cutter->text[middle] & 0xc0) == 0x80)
        middle--;
    if (word.tokens > cutter->budget && middle > begin) {
        TRY(add_word(cutter, begin, middle, err));
        return add_word(cutter, middle, end, err);
    }
    word.ends_sentence = ends_sentence(cutter, begin, end);
    buffer_append(&cutter->words, &word, sizeof word);
    return buffer_ok(&cutter->words) ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory to cut a text");
}

static enum status find_words(struct cutter *cutter, struct err *err)
{
    const char *text = cutter->text;
    for (size_t at = 0; at < cutter->length;) {
        size_t begin = at;
        bool stop = false;
        for (; at < cutter->length && !is_space(text[at]) && !stop; at++)
            if ((stop = is_wide_stop(text + at, cutter->length - at)))
                at += 2;
        if (at > begin)
            TRY(add_word(cutter, begin, at, err));
        else
            at++;
    }
    return STATUS_OK;
}

/* The end of the chunk that begins with word `first`: behind its last sentence if that fills half of it. */
static size_t find_end(const struct cutter *cutter, const struct word *words, size_t count, size_t first)
{
    uint32_t tokens = 0;
    size_t at = first, sentence = first;
    for (; at < count && (at == first || tokens + words[at].tokens <= cutter->budget); at++) {
        tokens += words[at].tokens;
        if (words[at].ends_sentence && 2 * tokens >= cutter->budget)
            sentence = at + 1;
    }
    return at < count && sentence > first ? sentence : at;
}

/* Where the next chunk begins: as many words before the end of the last one as the overlap holds. */
static size_t step_back(const struct cutter *cutter, const struct word *words, size_t first, size_t end)
{
    uint32_t tokens = 0;
    size_t at = end;
    while (at > first + 1 && tokens + words[at - 1].tokens <= cutter->overlap)
        tokens += words[--at].tokens;
    return at;
}

static enum status put_chunks(const struct cutter *cutter, struct buffer *chunks, struct err *err)
{
    const struct word *words = (const struct word *)(const void *)cutter->words.data;
    size_t count = cutter->words.length / sizeof *words;
    if (count == 0) {
        struct chunk all = {0, cutter->length};
        buffer_append(chunks, &all, sizeof all);
    }
    for (size_t first = 0; first < count;) {
        size_t end = find_end(cutter, words, count, first);
        struct chunk chunk = {words[first].begin, words[end - 1].end};
        if (first == 0 && end == count)
            chunk = (struct chunk){0, cutter->length};
        buffer_append(chunks, &chunk, sizeof chunk);
        first = end == count ? count : step_back(cutter, words, first, end);
    }
    return buffer_ok(chunks) ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the chunks of a text");
}

enum status chunk_cut(const struct chunking *chunking, const struct model *model, const char *text, size_t length,
                      struct buffer *chunks, struct buffer *scratch, struct err *err)
{
    struct cutter cutter = {.model = model, .text = text, .length = length, .ids = scratch};
    struct buffer prompted = {0};
    const char *prompt = "";
    size_t prompt_bytes = 0;
    uint32_t around = 0;
    enum status status = model_put_prompt(model, &prompted, &prompt, &prompt_bytes, err);
    if (status == STATUS_OK)
        status = count(&cutter, prompt, prompt_bytes, &around, err);
    buffer_free(&prompted);
    TRY(status);
    TRY(count(&cutter, "", 0, &cutter.special, err));
    cutter.budget = chunking->tokens > around ? chunking->tokens - around : 1;
    cutter.overlap = chunking->overlap < cutter.budget ? chunking->overlap : cutter.budget - 1;
    status = find_words(&cutter, err);
    if (status == STATUS_OK)
        status = put_chunks(&cutter, chunks, err);
    buffer_free(&cutter.words);
    return status;
}
