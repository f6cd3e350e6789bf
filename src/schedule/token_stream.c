#include "schedule/token_stream.h"

#include <pthread.h>
#include <stdlib.h>

struct token_stream {
    pthread_mutex_t lock; /* of the buffers, from token_stream_begin on */
    struct buffer ids;    /* int32_t each */
    struct buffer ends;   /* uint32_t each: the bytes of `text` up to this token */
    struct buffer text;

    /* The I/O thread's; the writer reads `written`. */
    struct buffer written; /* int32_t each */
    uint32_t taken, count; /* count: of ids, at the last take */
    unsigned holders;
};

enum status token_stream_open(struct token_stream **out, struct err *err)
{
    struct token_stream *stream = calloc(1, sizeof *stream);
    *out = stream;
    if (!stream) { return err_set(err, STATUS_NO_MEMORY, "no memory for a stream of tokens"); }
    pthread_mutex_init(&stream->lock, NULL);
    stream->holders = 1;
    return STATUS_OK;
}

struct token_stream *token_stream_hold(struct token_stream *stream)
{
    stream->holders++;
    return stream;
}

static void empty_stream(struct token_stream *stream)
{
    buffer_free(&stream->ids);
    buffer_free(&stream->ends);
    buffer_free(&stream->text);
    buffer_free(&stream->written);
}

static bool is_whole(const struct token_stream *stream)
{
    return buffer_ok(&stream->ids) && buffer_ok(&stream->ends) && buffer_ok(&stream->text);
}

void token_stream_drop(struct token_stream *stream)
{
    if (!stream || --stream->holders > 0) { return; }
    empty_stream(stream);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

/* The number of bytes of text up to a token. */
static uint32_t end_of(const struct token_stream *stream, uint32_t count)
{
    return count == 0 ? 0 : ((const uint32_t *)(const void *)stream->ends.data)[count - 1];
}

static uint32_t count_ids(const struct buffer *ids)
{
    return (uint32_t)(ids->length / sizeof(int32_t));
}

/* --- the thread that writes --- */

uint32_t token_stream_written(const struct token_stream *stream, const int32_t **ids)
{
    *ids = (const int32_t *)(const void *)stream->written.data;
    return count_ids(&stream->written);
}

enum status token_stream_put(struct token_stream *stream, const int32_t *ids, const uint32_t *ends, uint32_t count,
                             const char *text, struct err *err)
{
    pthread_mutex_lock(&stream->lock);
    uint32_t had = count_ids(&stream->ids), from = end_of(stream, had);
    if (count > had) {
        buffer_append(&stream->ids, ids + had, (count - had) * sizeof *ids);
        buffer_append(&stream->ends, ends + had, (count - had) * sizeof *ends);
        if (ends[count - 1] > from) { buffer_append(&stream->text, text + from, ends[count - 1] - from); }
    }
    bool good = is_whole(stream);
    pthread_mutex_unlock(&stream->lock);
    return good ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for a stream of tokens");
}

/* --- the I/O thread --- */

enum status token_stream_begin(struct token_stream *stream, const void *ids, size_t bytes, struct err *err)
{
    empty_stream(stream);
    if (bytes > 0) { buffer_append(&stream->written, ids, bytes); }
    stream->taken = stream->count = count_ids(&stream->written);
    return buffer_ok(&stream->written) ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for a stream of tokens");
}

bool token_stream_take(struct token_stream *stream, bool always, struct token_run *run, struct buffer *to)
{
    pthread_mutex_lock(&stream->lock);
    uint32_t count = count_ids(&stream->ids), from = stream->taken;
    bool takes = is_whole(stream) && count >= from && (always || end_of(stream, count) > end_of(stream, from));
    if (takes) {
        uint32_t begin = end_of(stream, from), end = end_of(stream, count);
        *run = (struct token_run){.index = from, .count = count - from, .text_bytes = end - begin};
        if (count > from) {
            buffer_append(to, stream->ids.data + from * sizeof(int32_t), run->count * sizeof(int32_t));
        }
        if (end > begin) { buffer_append(to, stream->text.data + begin, run->text_bytes); }
        stream->taken = stream->count = count;
    }
    pthread_mutex_unlock(&stream->lock);
    return takes;
}

void token_stream_resume(struct token_stream *stream, uint32_t count)
{
    stream->taken = count;
}

uint32_t token_stream_count(const struct token_stream *stream)
{
    return stream->count;
}
