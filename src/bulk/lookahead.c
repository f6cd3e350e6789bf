#include "bulk/lookahead.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/system.h"

void lookahead_push(struct lookahead *window, struct doc_batch *docs)
{
    docs->next = NULL;
    if (!window->last) {
        window->first = docs;
    } else {
        window->last->next = docs;
    }
    window->last = docs;
}

static uint32_t count_rows(const struct lookahead *window, bool chunks)
{
    uint32_t rows = 0;
    for (const struct doc_batch *docs = window->first; docs != NULL; docs = docs->next) {
        for (uint32_t d = 0; d < docs->count; d++) {
            uint32_t pieces = docs->first_piece[d + 1] - docs->first_piece[d];
            rows += chunks && pieces > 1 ? pieces : 1;
        }
    }
    return rows;
}

/* Adds a row of `count` pieces; a failed document has none. */
static void add_row(struct lookahead *window, uint64_t number, const struct document *document, uint32_t chunk,
                    struct piece *first, uint32_t count)
{
    struct output_row *row = &window->rows[window->row_count++];
    *row = (struct output_row){.number = number, .document = document, .chunk = chunk};
    row->pieces = first;
    row->piece_count = row->pieces_left = count;
    row->code = document->code;
    row->state = count == 0 ? STATE_FAILED : STATE_TODO;
    row->hash = count == 1 ? first->hash : document->hash;
    for (uint32_t i = 0; i < count; i++) { first[i].owner = row; }
}

enum status lookahead_make_rows(struct lookahead *window, uint64_t first_row, enum numbering numbering, struct err *err)
{
    bool chunks = numbering != NUMBER_DOCUMENTS;
    uint32_t rows = count_rows(window, chunks);
    if (rows > window->row_room) {
        free(window->rows);
        window->rows = malloc(rows * sizeof *window->rows);
        window->row_room = window->rows ? rows : 0;
        if (!window->rows) { return err_set(err, STATUS_NO_MEMORY, "no memory for %u rows", rows); }
    }
    window->row_count = 0;
    for (struct doc_batch *docs = window->first; docs != NULL; docs = docs->next) {
        for (uint32_t d = 0; d < docs->count; d++) {
            const struct document *document = &docs->documents[d];
            struct piece *first = docs->pieces + docs->first_piece[d];
            uint32_t pieces = docs->first_piece[d + 1] - docs->first_piece[d];
            bool apart = chunks && pieces > 1;
            uint64_t number = numbering == NUMBER_DOCUMENTS ? document->number
                              : numbering == NUMBER_CHUNKS  ? first_row + window->row_count
                                                            : document->first_row;
            for (uint32_t c = 0; c < (apart ? pieces : 1); c++) {
                add_row(window, number + c, document, c, first + c, apart ? 1 : pieces);
            }
        }
    }
    return STATUS_OK;
}

uint32_t piece_weight(const struct piece *piece)
{
    return piece->row.tokens > 0 ? piece->row.tokens : piece->row.text_bytes;
}

static enum status make_room(struct lookahead *window, uint32_t pieces, uint32_t dim, struct err *err)
{
    size_t floats = (size_t)window->row_count * dim;
    if (pieces > window->order_room) {
        free(window->order);
        window->order = malloc(2 * (size_t)pieces * sizeof *window->order);
        window->order_room = window->order ? pieces : 0;
    }
    if (floats > window->vectors_room) {
        free(window->vectors);
        window->vectors = memory_aligned(floats * sizeof *window->vectors);
        window->vectors_room = window->vectors ? floats : 0;
    }
    if (pieces > window->order_room || floats > window->vectors_room) {
        return err_set(err, STATUS_NO_MEMORY, "no memory to sort %u texts and keep their vectors", pieces);
    }
    return STATUS_OK;
}

/* Gives a row's pieces their places for vectors. */
static enum status place(struct lookahead *window, struct output_row *row, uint32_t dim, struct err *err)
{
    bool several = row->piece_count > 1;
    if (several && !(row->parts = malloc((size_t)row->piece_count * dim * sizeof(float)))) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for the chunks of a text");
    }
    float *to = several ? row->parts : lookahead_vector(window, row, dim);
    for (uint32_t p = 0; p < row->piece_count; p++, to += dim) { row->pieces[p].vector = to; }
    return STATUS_OK;
}

/* Sorts by BITS of the weight at a time, lowest first; equal ones keep their order. Shapes: order [2 * count], of which
 * the second half is scratch. */
static void sort_longest_first(struct weighed *order, uint32_t count)
{
    enum { BITS = 11, VALUES = 1 << BITS };
    uint32_t most = 0, counts[VALUES];
    struct weighed *from = order, *to = order + count;
    for (uint32_t i = 0; i < count; i++) { most = order[i].weight > most ? order[i].weight : most; }
    for (unsigned shift = 0; shift < 32 && most >> shift > 0; shift += BITS) {
        uint32_t place = 0;
        memset(counts, 0, sizeof counts);
        for (uint32_t i = 0; i < count; i++) { counts[from[i].weight >> shift & (VALUES - 1)]++; }
        for (uint32_t value = VALUES; value-- > 0;) { /* the largest value first */
            uint32_t here = counts[value];
            counts[value] = place;
            place += here;
        }
        for (uint32_t i = 0; i < count; i++) { to[counts[from[i].weight >> shift & (VALUES - 1)]++] = from[i]; }
        struct weighed *sorted = to;
        to = from;
        from = sorted;
    }
    if (from != order) { memcpy(order, from, count * sizeof *order); }
}

enum status lookahead_order(struct lookahead *window, uint32_t dim, struct err *err)
{
    uint32_t pieces = 0;
    for (uint32_t i = 0; i < window->row_count; i++) {
        pieces += window->rows[i].state == STATE_TODO ? window->rows[i].piece_count : 0;
    }
    TRY(make_room(window, pieces, dim, err));
    window->order_count = 0;
    for (uint32_t i = 0; i < window->row_count; i++) {
        struct output_row *row = &window->rows[i];
        if (row->state != STATE_TODO) { continue; }
        TRY(place(window, row, dim, err));
        for (uint32_t p = 0; p < row->piece_count; p++) {
            window->order[window->order_count++] = (struct weighed){&row->pieces[p], piece_weight(&row->pieces[p])};
        }
    }
    sort_longest_first(window->order, pieces);
    return STATUS_OK;
}

uint32_t lookahead_batch(const struct lookahead *window, uint32_t first, uint32_t count, uint32_t most_weight,
                         uint32_t most_rows)
{
    const struct weighed *order = window->order + first;
    uint32_t taken = 1;
    uint64_t sum = order[0].weight;
    while (taken < count && taken < most_rows && sum + order[taken].weight <= most_weight) {
        sum += order[taken++].weight;
    }
    return taken;
}

uint64_t lookahead_weight(const struct lookahead *window, uint32_t first, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = first; i < first + count; i++) { sum += window->order[i].weight; }
    return sum;
}

float *lookahead_vector(const struct lookahead *window, const struct output_row *row, uint32_t dim)
{
    return window->vectors + (size_t)(row - window->rows) * dim;
}

void lookahead_reset(struct lookahead *window)
{
    for (uint32_t i = 0; i < window->row_count; i++) { free(window->rows[i].parts); }
    while (window->first) {
        struct doc_batch *docs = window->first;
        window->first = docs->next;
        doc_batch_free(docs);
    }
    *window = (struct lookahead){.rows = window->rows,
                                 .row_room = window->row_room,
                                 .order = window->order,
                                 .order_room = window->order_room,
                                 .vectors = window->vectors,
                                 .vectors_room = window->vectors_room};
}

void lookahead_free(struct lookahead *window)
{
    lookahead_reset(window);
    free(window->rows);
    free(window->order);
    free(window->vectors);
}

/* --- Batches of documents. Their memory is reserved before the first document, so that pointers into it stay valid.
 * --- */

struct doc_batch *doc_batch_new(const struct preparer *preparer)
{
    struct doc_batch *docs = calloc(1, sizeof *docs);
    if (docs) { docs->preparer = preparer; }
    return docs;
}

void doc_batch_free(struct doc_batch *docs)
{
    if (!docs) { return; }
    buffer_free(&docs->bytes);
    buffer_free(&docs->ids);
    buffer_free(&docs->listed);
    free(docs->pieces);
    free(docs);
}

static const char *copy_bytes(struct doc_batch *docs, const char *bytes, size_t length)
{
    if (!bytes) { return NULL; }
    char *to = docs->bytes.data + docs->bytes.length;
    memcpy(to, bytes, length);
    docs->bytes.length += length;
    return to;
}

enum status doc_batch_add(struct doc_batch *docs, const struct document *document, bool *added, struct err *err)
{
    size_t file_bytes = strlen(document->file) + 1;
    bool same_file = docs->file && strcmp(docs->file, document->file) == 0;
    size_t need =
        document->text_bytes + document->id_bytes + document->kept_bytes + document->message_bytes + file_bytes + 1;
    *added = docs->count == 0 || (docs->count < DOC_BATCH_MAX && docs->bytes.length + need <= docs->bytes.capacity);
    if (!*added) { return STATUS_OK; }
    if (docs->count == 0 && !buffer_reserve(&docs->bytes, need > DOC_BATCH_BYTES ? need : DOC_BATCH_BYTES)) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for a text of %zu bytes", document->text_bytes);
    }
    struct document *to = &docs->documents[docs->count++];
    *to = *document;
    to->text = document->code == ROW_OK ? copy_bytes(docs, document->text, document->text_bytes) : NULL;
    to->id = copy_bytes(docs, document->id, document->id_bytes);
    to->kept = copy_bytes(docs, document->kept, document->kept_bytes);
    to->message = copy_bytes(docs, document->message, document->message_bytes);
    to->file = docs->file = same_file ? docs->file : copy_bytes(docs, document->file, file_bytes);
    return STATUS_OK;
}

static struct piece *add_piece(struct doc_batch *docs)
{
    if (docs->piece_count == docs->piece_room) {
        uint32_t room = docs->piece_room == 0 ? DOC_BATCH_MAX : 2 * docs->piece_room;
        struct piece *pieces = realloc(docs->pieces, room * sizeof *pieces);
        if (!pieces) { return NULL; }
        docs->pieces = pieces;
        docs->piece_room = room;
    }
    struct piece *piece = &docs->pieces[docs->piece_count++];
    memset(piece, 0, sizeof *piece);
    return piece;
}

/* Appends token ids to those of earlier pieces. Pointers to them are set at the end, when they no longer move. */
static enum status tokenize(struct doc_batch *docs, struct piece *piece, struct buffer *scratch)
{
    const struct model *model = docs->preparer->model;
    struct err *err = &docs->err;
    const char *text = piece->row.text;
    size_t length = piece->row.text_bytes;
    TRY(model_put_prompt(model, scratch, &text, &length, err));
    size_t bound = tokenizer_bound(model->tokenizer, length);
    uint32_t most = bound < model->max_tokens ? (uint32_t)bound : model->max_tokens;
    char *to = buffer_reserve(&docs->ids, (most + (size_t)1) * sizeof(int32_t));
    if (!to) { return err_set(err, STATUS_NO_MEMORY, "no memory for %u token ids", most); }
    TRY(tokenizer_encode(model->tokenizer, text, length, most, (int32_t *)(void *)to, &piece->row.tokens,
                         &piece->row.truncated, err));
    docs->ids.length += piece->row.tokens * sizeof(int32_t);
    return STATUS_OK;
}

static struct hash hash_text(const struct preparer *preparer, const char *text, size_t length)
{
    XXH128_hash_t hash = XXH3_128bits_withSeed(text, length, preparer->seed);
    return (struct hash){hash.low64, hash.high64};
}

static enum status put_piece(struct doc_batch *docs, const struct document *document, struct chunk chunk,
                             struct buffer *scratch)
{
    const struct preparer *preparer = docs->preparer;
    struct piece *piece = add_piece(docs);
    if (!piece) { return err_set(&docs->err, STATUS_NO_MEMORY, "no memory for the pieces of a text"); }
    piece->row.text = document->text + chunk.begin;
    piece->row.text_bytes = (uint32_t)(chunk.end - chunk.begin);
    bool whole = piece->row.text_bytes == document->text_bytes;
    piece->hash = whole ? document->hash : hash_text(preparer, piece->row.text, piece->row.text_bytes);
    return preparer->ids ? tokenize(docs, piece, scratch) : STATUS_OK;
}

/* Makes a piece of each text of a record. */
static enum status split_document(struct doc_batch *docs, const struct document *document, struct buffer *scratch)
{
    size_t begin = 0;
    for (uint32_t i = 0; i < document->texts; i++) {
        uint32_t end;
        memcpy(&end, document->kept + i * sizeof end, sizeof end);
        TRY(put_piece(docs, document, (struct chunk){begin, end}, scratch));
        begin = end;
    }
    return STATUS_OK;
}

static enum status cut_document(struct doc_batch *docs, const struct document *document, struct buffer *scratch)
{
    const struct preparer *preparer = docs->preparer;
    struct buffer chunks = {0};
    enum status status = chunking_cut(&preparer->chunking, preparer->model, document->text, document->text_bytes,
                                      &chunks, scratch, &docs->err);
    const struct chunk *list = (const struct chunk *)(const void *)chunks.data;
    for (size_t i = 0; i < chunks.length / sizeof *list && status == STATUS_OK; i++) {
        status = put_piece(docs, document, list[i], scratch);
    }
    buffer_free(&chunks);
    return status;
}

void doc_batch_prepare(struct doc_batch *docs)
{
    const struct preparer *preparer = docs->preparer;
    struct buffer scratch = {0};
    for (uint32_t d = 0; d < docs->count && docs->status == STATUS_OK; d++) {
        struct document *document = &docs->documents[d];
        docs->first_piece[d] = docs->piece_count;
        if (document->code != ROW_OK) { continue; }
        document->hash = hash_text(preparer, document->text, document->text_bytes);
        if (document->texts > 0) {
            docs->status = split_document(docs, document, &scratch);
        } else if (preparer->chunking.tokens > 0) {
            docs->status = cut_document(docs, document, &scratch);
        } else {
            docs->status = put_piece(docs, document, (struct chunk){0, document->text_bytes}, &scratch);
        }
    }
    buffer_free(&scratch);
    docs->first_piece[docs->count] = docs->piece_count;
    int32_t *ids = (int32_t *)(void *)docs->ids.data;
    for (uint32_t i = 0; i < docs->piece_count; i++) {
        docs->pieces[i].row.ids = ids;
        ids += docs->pieces[i].row.tokens;
    }
    for (uint32_t d = 0; d < docs->count; d++) {
        bool cut = false;
        for (uint32_t i = docs->first_piece[d]; i < docs->first_piece[d + 1]; i++) {
            cut = cut || docs->pieces[i].row.truncated;
        }
        docs->cut += cut;
    }
}

/* --- Chunks. A text is split into words, each with its number of tokens and whether it ends a sentence; chunks are
 * runs of words.
 *
 * The tokens of words add up to those of their run if the tokenizer splits at white space first, as BERT's does; with
 * any other the model's limit would truncate chunks, as it does all texts. --- */

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
        if (tokens || overlap) { number = strtoul(at + (tokens ? 7 : 8), &end, 10); }
        bool mean = length == 4 && strncmp(at, "mean", 4) == 0;
        if (!mean && (end != at + length || number > 1u << 20 || at[length - 1] == ':')) {
            return err_set(err, STATUS_BAD_INPUT, "--chunk: \"%.*s\" is none of tokens:N, overlap:N, mean",
                           (int)(length < 80 ? length : 80), at);
        }
        out->mean = out->mean || mean;
        out->tokens = tokens ? (uint32_t)number : out->tokens;
        out->overlap = overlap ? (uint32_t)number : out->overlap;
        at += length + (at[length] == ',');
    }
    if (out->tokens == 0) {
        return err_set(err, STATUS_BAD_INPUT, "--chunk needs tokens:N, for example tokens:256,overlap:32");
    }
    if (out->overlap >= out->tokens) {
        return err_set(err, STATUS_BAD_INPUT, "--chunk: an overlap of %u leaves nothing of %u tokens", out->overlap,
                       out->tokens);
    }
    return STATUS_OK;
}

static enum status count_tokens(struct cutter *cutter, const char *text, size_t length, uint32_t *out, struct err *err)
{
    const struct tokenizer *tokenizer = cutter->model->tokenizer;
    size_t bound = tokenizer_bound(tokenizer, length);
    uint32_t most = bound < UINT32_MAX ? (uint32_t)bound : UINT32_MAX;
    bool truncated;
    cutter->ids->length = 0;
    char *ids = buffer_reserve(cutter->ids, (most + (size_t)1) * sizeof(int32_t));
    if (!ids) { return err_set(err, STATUS_NO_MEMORY, "no memory to cut a text of %zu bytes", length); }
    return tokenizer_encode(tokenizer, text, length, most, (int32_t *)(void *)ids, out, &truncated, err);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

/* Full stops of Chinese and Japanese, which no space follows: U+3002, U+FF01, U+FF1F. */
static bool is_wide_stop(const char *text, size_t left)
{
    return left >= 3 && (memcmp(text, "\xe3\x80\x82", 3) == 0 || memcmp(text, "\xef\xbc\x81", 3) == 0 ||
                         memcmp(text, "\xef\xbc\x9f", 3) == 0);
}

/* True if a word ends a sentence: with a stop, perhaps before quotes or brackets, or before an empty line. */
static bool ends_sentence(const struct cutter *cutter, size_t begin, size_t end)
{
    const char *text = cutter->text;
    unsigned feeds = 0;
    for (size_t at = end; at < cutter->length && is_space(text[at]); at++) { feeds += text[at] == '\n'; }
    while (end > begin && strchr("\"')]}", text[end - 1])) { end--; }
    bool stop = end > begin && strchr(".!?", text[end - 1]);
    return stop || feeds >= 2 || (end - begin >= 3 && is_wide_stop(text + end - 3, 3));
}

/* Adds a run without white space; halves it if it is too long for a chunk. */
static enum status add_word(struct cutter *cutter, size_t begin, size_t end, struct err *err)
{
    struct word word = {.begin = begin, .end = end};
    TRY(count_tokens(cutter, cutter->text + begin, end - begin, &word.tokens, err));
    word.tokens = word.tokens > cutter->special ? word.tokens - cutter->special : 0;
    size_t middle = begin + (end - begin) / 2;
    while (middle > begin && ((unsigned char)cutter->text[middle] & 0xc0) == 0x80) { middle--; }
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
        for (; at < cutter->length && !is_space(text[at]) && !stop; at++) {
            if ((stop = is_wide_stop(text + at, cutter->length - at))) { at += 2; }
        }
        if (at > begin) {
            TRY(add_word(cutter, begin, at, err));
        } else {
            at++;
        }
    }
    return STATUS_OK;
}

/* The end of the chunk that begins with word `first`: the end of its last sentence if that fills half of it. */
static size_t find_end(const struct cutter *cutter, const struct word *words, size_t count, size_t first)
{
    uint32_t tokens = 0;
    size_t at = first, sentence = first;
    for (; at < count && (at == first || tokens + words[at].tokens <= cutter->budget); at++) {
        tokens += words[at].tokens;
        if (words[at].ends_sentence && 2 * tokens >= cutter->budget) { sentence = at + 1; }
    }
    return at < count && sentence > first ? sentence : at;
}

/* The first word of the next chunk, which repeats the words before `end` that fit into the overlap. */
static size_t step_back(const struct cutter *cutter, const struct word *words, size_t first, size_t end)
{
    uint32_t tokens = 0;
    size_t at = end;
    while (at > first + 1 && tokens + words[at - 1].tokens <= cutter->overlap) { tokens += words[--at].tokens; }
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
        if (first == 0 && end == count) { chunk = (struct chunk){0, cutter->length}; }
        buffer_append(chunks, &chunk, sizeof chunk);
        first = end == count ? count : step_back(cutter, words, first, end);
    }
    return buffer_ok(chunks) ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the chunks of a text");
}

enum status chunking_cut(const struct chunking *chunking, const struct model *model, const char *text, size_t length,
                         struct buffer *chunks, struct buffer *scratch, struct err *err)
{
    struct cutter cutter = {.model = model, .text = text, .length = length, .ids = scratch};
    struct buffer prompted = {0};
    const char *prompt = "";
    size_t prompt_bytes = 0;
    uint32_t around = 0;
    enum status status = model_put_prompt(model, &prompted, &prompt, &prompt_bytes, err);
    if (status == STATUS_OK) { status = count_tokens(&cutter, prompt, prompt_bytes, &around, err); }
    buffer_free(&prompted);
    TRY(status);
    TRY(count_tokens(&cutter, "", 0, &cutter.special, err));
    cutter.budget = chunking->tokens > around ? chunking->tokens - around : 1;
    cutter.overlap = chunking->overlap < cutter.budget ? chunking->overlap : cutter.budget - 1;
    status = find_words(&cutter, err);
    if (status == STATUS_OK) { status = put_chunks(&cutter, chunks, err); }
    buffer_free(&cutter.words);
    return status;
}
