/* Room is made once, before the first document, so that pointers into it stay true. */
#include "bulk/slice.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

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
