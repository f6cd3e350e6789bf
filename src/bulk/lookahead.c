#include "bulk/lookahead.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/system.h"

void look_push(struct look *window, struct slice *slice)
{
    slice->next = NULL;
    if (window->last == NULL)
        window->first = slice;
    else
        window->last->next = slice;
    window->last = slice;
}

static uint32_t count_units(const struct look *window, bool chunks)
{
    uint32_t units = 0;
    for (const struct slice *slice = window->first; slice != NULL; slice = slice->next)
        for (uint32_t d = 0; d < slice->count; d++) {
            uint32_t pieces = slice->first_piece[d + 1] - slice->first_piece[d];
            units += chunks && pieces > 1 ? pieces : 1;
        }
    return units;
}

/* One unit: `count` pieces from `first` on; none of a failed document. */
static void add_unit(struct look *window, uint64_t number, const struct document *document, uint32_t chunk,
                     struct piece *first, uint32_t count)
{
    struct unit *unit = &window->units[window->unit_count++];
    *unit = (struct unit){.number = number, .document = document, .chunk = chunk};
    unit->pieces = first;
    unit->piece_count = unit->pieces_left = count;
    unit->code = document->code;
    unit->state = count == 0 ? UNIT_FAILED : UNIT_TODO;
    unit->hash = count == 1 ? first->hash : document->hash;
    for (uint32_t i = 0; i < count; i++)
        first[i].unit = unit;
}

enum status look_count(struct look *window, uint64_t first_row, enum numbering numbering, struct err *err)
{
    bool chunks = numbering != NUMBER_DOCUMENTS;
    uint32_t units = count_units(window, chunks);
    if (units > window->unit_room) {
        free(window->units);
        window->units = malloc(units * sizeof *window->units);
        window->unit_room = window->units == NULL ? 0 : units;
        if (window->units == NULL)
            return err_set(err, STATUS_NO_MEMORY, "no memory for %u rows", units);
    }
    window->unit_count = 0;
    for (struct slice *slice = window->first; slice != NULL; slice = slice->next)
        for (uint32_t d = 0; d < slice->count; d++) {
            const struct document *document = &slice->documents[d];
            struct piece *first = slice->pieces + slice->first_piece[d];
            uint32_t pieces = slice->first_piece[d + 1] - slice->first_piece[d];
            bool apart = chunks && pieces > 1;
            uint64_t number = numbering == NUMBER_DOCUMENTS ? document->number
                              : numbering == NUMBER_CHUNKS  ? first_row + window->unit_count
                                                            : document->first_row;
            for (uint32_t c = 0; c < (apart ? pieces : 1); c++)
                add_unit(window, number + c, document, c, first + c, apart ? 1 : pieces);
        }
    return STATUS_OK;
}

/* A piece while it is sorted. */
struct weighed {
    struct piece *piece;
    uint32_t weight, at; /* at: as it was read */
};

static uint32_t weight(const struct piece *piece)
{
    return piece->row.tokens > 0 ? piece->row.tokens : piece->row.text_bytes;
}

static enum status make_room(struct look *window, uint32_t pieces, uint32_t dim, struct err *err)
{
    size_t floats = (size_t)window->unit_count * dim;
    if (pieces > window->order_room) {
        free(window->order);
        free(window->weights);
        window->order = malloc(pieces * sizeof *window->order);
        window->weights = malloc(pieces * sizeof *window->weights);
        window->order_room = window->order == NULL || window->weights == NULL ? 0 : pieces;
    }
    if (floats > window->vectors_room) {
        free(window->vectors);
        window->vectors = memory_aligned(floats * sizeof *window->vectors);
        window->vectors_room = window->vectors == NULL ? 0 : floats;
    }
    if (pieces > window->order_room || floats > window->vectors_room)
        return err_set(err, STATUS_NO_MEMORY, "no memory to sort %u texts and keep their vectors", pieces);
    return STATUS_OK;
}

/* Where the vectors of a unit's pieces go. */
static enum status place(struct look *window, struct unit *unit, uint32_t dim, struct err *err)
{
    bool several = unit->piece_count > 1;
    if (several && (unit->parts = malloc((size_t)unit->piece_count * dim * sizeof(float))) == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the chunks of a text");
    float *to = several ? unit->parts : look_vector(window, unit, dim);
    for (uint32_t p = 0; p < unit->piece_count; p++, to += dim)
        unit->pieces[p].vector = to;
    return STATUS_OK;
}

static int longest_first(const void *left, const void *right)
{
    const struct weighed *a = left, *b = right;
    return a->weight != b->weight ? (a->weight < b->weight) - (a->weight > b->weight) : (a->at > b->at) - (a->at < b->at);
}

static enum status sort(struct look *window, struct err *err)
{
    uint32_t count = window->order_count;
    struct weighed *all = malloc(count * sizeof *all);
    if (all == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory to sort %u texts", count);
    for (uint32_t i = 0; i < count; i++)
        all[i] = (struct weighed){window->order[i], weight(window->order[i]), i};
    qsort(all, count, sizeof *all, longest_first);
    for (uint32_t i = 0; i < count; i++) {
        window->order[i] = all[i].piece;
        window->weights[i] = all[i].weight;
    }
    free(all);
    return STATUS_OK;
}

enum status look_order(struct look *window, uint32_t dim, struct err *err)
{
    uint32_t pieces = 0;
    for (uint32_t i = 0; i < window->unit_count; i++)
        pieces += window->units[i].state == UNIT_TODO ? window->units[i].piece_count : 0;
    TRY(make_room(window, pieces, dim, err));
    window->order_count = 0;
    for (uint32_t i = 0; i < window->unit_count; i++) {
        struct unit *unit = &window->units[i];
        if (unit->state != UNIT_TODO)
            continue;
        TRY(place(window, unit, dim, err));
        for (uint32_t p = 0; p < unit->piece_count; p++)
            window->order[window->order_count++] = &unit->pieces[p];
    }
    return pieces > 0 ? sort(window, err) : STATUS_OK;
}

uint32_t look_batch(const struct look *window, uint32_t first, uint32_t count, uint32_t most_weight, uint32_t most_rows)
{
    const uint32_t *weights = window->weights + first;
    uint32_t taken = 1;
    uint64_t sum = weights[0];
    while (taken < count && taken < most_rows && sum + weights[taken] <= most_weight)
        sum += weights[taken++];
    return taken;
}

uint64_t look_weight(const struct look *window, uint32_t first, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = first; i < first + count; i++)
        sum += window->weights[i];
    return sum;
}

float *look_vector(const struct look *window, const struct unit *unit, uint32_t dim)
{
    return window->vectors + (size_t)(unit - window->units) * dim;
}

static void free_parts(struct look *window)
{
    for (uint32_t i = 0; i < window->unit_count; i++)
        free(window->units[i].parts);
    window->unit_count = 0;
}

void look_reset(struct look *window, struct slice **idle)
{
    free_parts(window);
    while (window->first != NULL) {
        struct slice *slice = window->first;
        window->first = slice->next;
        slice_reset(slice);
        slice->next = *idle;
        *idle = slice;
    }
    *window = (struct look){.units = window->units,
                            .unit_room = window->unit_room,
                            .order = window->order,
                            .weights = window->weights,
                            .order_room = window->order_room,
                            .vectors = window->vectors,
                            .vectors_room = window->vectors_room};
}

void look_free(struct look *window)
{
    struct slice *slices = NULL;
    look_reset(window, &slices);
    while (slices != NULL) {
        struct slice *slice = slices;
        slices = slice->next;
        slice_free(slice);
    }
    free(window->units);
    free(window->order);
    free(window->weights);
    free(window->vectors);
}

/* Room is made once, before the first document, so that pointers into it stay true. */

struct slice *slice_new(void)
{
    return calloc(1, sizeof(struct slice));
}

void slice_free(struct slice *slice)
{
    if (slice == NULL)
        return;
    buffer_free(&slice->bytes);
    buffer_free(&slice->ids);
    free(slice->pieces);
    free(slice);
}

void slice_reset(struct slice *slice)
{
    if (slice->bytes.capacity > 2 * SLICE_BYTES)
        buffer_free(&slice->bytes);
    if (slice->ids.capacity > 4 * SLICE_BYTES)
        buffer_free(&slice->ids);
    slice->bytes.length = slice->ids.length = 0;
    slice->next = NULL;
    slice->file = NULL;
    slice->count = slice->piece_count = 0;
    slice->status = STATUS_OK;
}

static const char *copy(struct slice *slice, const char *bytes, size_t length)
{
    if (bytes == NULL)
        return NULL;
    char *to = slice->bytes.data + slice->bytes.length;
    memcpy(to, bytes, length);
    slice->bytes.length += length;
    return to;
}

enum status slice_add(struct slice *slice, const struct document *document, bool *added, struct err *err)
{
    size_t file_bytes = strlen(document->file) + 1;
    bool same_file = slice->file != NULL && strcmp(slice->file, document->file) == 0;
    size_t need =
        document->text_bytes + document->id_bytes + document->kept_bytes + document->message_bytes + file_bytes + 1;
    *added =
        slice->count == 0 || (slice->count < SLICE_DOCUMENTS && slice->bytes.length + need <= slice->bytes.capacity);
    if (!*added)
        return STATUS_OK;
    if (slice->count == 0 && buffer_reserve(&slice->bytes, need > SLICE_BYTES ? need : SLICE_BYTES) == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for a text of %zu bytes", document->text_bytes);
    struct document *to = &slice->documents[slice->count++];
    *to = *document;
    to->text = document->code == ROW_OK ? copy(slice, document->text, document->text_bytes) : NULL;
    to->id = copy(slice, document->id, document->id_bytes);
    to->kept = copy(slice, document->kept, document->kept_bytes);
    to->message = copy(slice, document->message, document->message_bytes);
    to->file = slice->file = same_file ? slice->file : copy(slice, document->file, file_bytes);
    return STATUS_OK;
}

static struct piece *add_piece(struct slice *slice)
{
    if (slice->piece_count == slice->piece_room) {
        uint32_t room = slice->piece_room == 0 ? SLICE_DOCUMENTS : 2 * slice->piece_room;
        struct piece *pieces = realloc(slice->pieces, room * sizeof *pieces);
        if (pieces == NULL)
            return NULL;
        slice->pieces = pieces;
        slice->piece_room = room;
    }
    struct piece *piece = &slice->pieces[slice->piece_count++];
    memset(piece, 0, sizeof *piece);
    return piece;
}

/* Token ids go behind those of the pieces before; where they lie is said in the end, when they move no more. */
static enum status tokenize(struct slice *slice, const struct preparer *preparer, struct piece *piece,
                            struct buffer *scratch, struct err *err)
{
    const struct model *model = preparer->model;
    const char *text = piece->row.text;
    size_t length = piece->row.text_bytes;
    TRY(model_put_prompt(model, scratch, &text, &length, err));
    size_t bound = tokenizer_bound(model->tokenizer, length);
    uint32_t most = bound < model->max_tokens ? (uint32_t)bound : model->max_tokens;
    char *to = buffer_reserve(&slice->ids, most * sizeof(int32_t));
    if (to == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for %u token ids", most);
    TRY(tokenizer_encode(model->tokenizer, text, length, most, (int32_t *)(void *)to, &piece->row.tokens,
                         &piece->row.truncated, err));
    slice->ids.length += piece->row.tokens * sizeof(int32_t);
    return STATUS_OK;
}

static struct hash hash_text(const struct preparer *preparer, const char *text, size_t length)
{
    XXH128_hash_t hash = XXH3_128bits_withSeed(text, length, preparer->seed);
    return (struct hash){hash.low64, hash.high64};
}

static enum status put_piece(struct slice *slice, const struct preparer *preparer, const struct document *document,
                             struct chunk chunk, struct buffer *scratch, struct err *err)
{
    struct piece *piece = add_piece(slice);
    if (piece == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the pieces of a text");
    piece->row.text = document->text + chunk.begin;
    piece->row.text_bytes = (uint32_t)(chunk.end - chunk.begin);
    bool whole = piece->row.text_bytes == document->text_bytes;
    piece->hash = whole ? document->hash : hash_text(preparer, piece->row.text, piece->row.text_bytes);
    return preparer->ids ? tokenize(slice, preparer, piece, scratch, err) : STATUS_OK;
}

static enum status cut(struct slice *slice, const struct preparer *preparer, const struct document *document,
                       struct buffer *scratch, struct err *err)
{
    struct buffer chunks = {0};
    enum status status =
        chunk_cut(&preparer->chunking, preparer->model, document->text, document->text_bytes, &chunks, scratch, err);
    const struct chunk *list = (const struct chunk *)(const void *)chunks.data;
    for (size_t i = 0; i < chunks.length / sizeof *list && status == STATUS_OK; i++)
        status = put_piece(slice, preparer, document, list[i], scratch, err);
    buffer_free(&chunks);
    return status;
}

void slice_prepare(struct slice *slice, const struct preparer *preparer, struct buffer *scratch)
{
    for (uint32_t d = 0; d < slice->count && slice->status == STATUS_OK; d++) {
        struct document *document = &slice->documents[d];
        slice->first_piece[d] = slice->piece_count;
        if (document->code != ROW_OK)
            continue;
        document->hash = hash_text(preparer, document->text, document->text_bytes);
        if (preparer->chunking.tokens > 0)
            slice->status = cut(slice, preparer, document, scratch, &slice->err);
        else
            slice->status =
                put_piece(slice, preparer, document, (struct chunk){0, document->text_bytes}, scratch, &slice->err);
    }
    slice->first_piece[slice->count] = slice->piece_count;
    int32_t *ids = (int32_t *)(void *)slice->ids.data;
    for (uint32_t i = 0; i < slice->piece_count; i++) {
        slice->pieces[i].row.ids = ids;
        ids += slice->pieces[i].row.tokens;
    }
}

/* A text is cut into words, each with its number of tokens and whether a sentence ends with it; chunks are runs of
 * words.
 *
 * That the tokens of words add up to those of their run is true where the tokenizer splits at white space first, as
 * BERT's does; any other one would have its chunks truncated at the model's limit as all texts are. */

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
