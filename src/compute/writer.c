#include "compute/writer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "compute/thread_pool.h"
#include "engine/cpu/parallel_for.h"
#include "engine/decoder.h"
#include "generate/generator.h"
#include "schedule/reply.h"

enum { TEXTS = GENERATOR_ROWS, USUAL_TOKENS = 1024 + 256 };

/* A text that is being written. */
struct text {
    struct batch *batch;
    struct generation *generation;
    uint32_t prompt_tokens, tokens; /* tokens: drawn so far */
    uint64_t latest_ns;             /* when the latest of them was, if that was here */
};

struct writer {
    struct generator *generator;
    struct parallel_for *parallel; /* NULL: the thread computes alone */
    struct thread_pool *pool;
    atomic_bool closing;
    pthread_mutex_t lock;
    struct writer_counts counts; /* under the lock */

    /* The thread's. */
    struct text texts[TEXTS]; /* [count] */
    unsigned count;
};

unsigned writer_texts(void)
{
    return TEXTS;
}

uint32_t writer_blocks(const struct engine *engine, const struct model *model, uint32_t usual)
{
    uint32_t longest = model->max_tokens;
    uint64_t most = (uint64_t)GENERATOR_ROWS * blocks_for(usual < longest ? usual : longest);
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 4;
    uint64_t fitting = memory / decoder_block_bytes(engine);
    if (most < blocks_for(longest)) { most = blocks_for(longest); }
    return (uint32_t)(fitting < 1 ? 1 : fitting < most ? fitting : most);
}

/* --- the thread --- */

static void finish_batch(struct thread_slot *slot, struct batch *batch, enum status status)
{
    batch->status = status;
    batch->finished_ns = clock_now_ns();
    thread_pool_finish(slot, batch);
}

/* Moves the text into its request. */
static enum status keep_text(const struct writer *writer, struct text *text)
{
    struct writing *writing = text->batch->rows[0]->request->writing;
    struct generation *generation = text->generation;
    if (generation->finish == FINISH_ERROR) {
        text->batch->err = generation->err;
        return generation->err.status;
    }
    buffer_free(&writing->text);
    writing->text = generation->out.text;
    generation->out.text = (struct buffer){0};
    if (writing->top_logprobs > 0) {
        buffer_free(&writing->logprobs);
        generation_put_logprobs(writer->generator, generation, &writing->logprobs);
        if (!buffer_ok(&writing->logprobs)) {
            return err_set(&text->batch->err, STATUS_NO_MEMORY, "no memory for the logprobs of a text");
        }
    }
    writing->finish = generation->finish;
    writing->completion_tokens = text->tokens;
    return STATUS_OK;
}

/* Notes the state of the generator. */
static void count_state(struct writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    writer->counts.generator = generator_state(writer->generator);
    pthread_mutex_unlock(&writer->lock);
}

/* Ends a text: the last one takes its place. */
static void end_text(struct writer *writer, struct thread_slot *slot, unsigned at, enum status status)
{
    struct text text = writer->texts[at];
    writer->texts[at] = writer->texts[--writer->count];
    if (status == STATUS_OK) { status = keep_text(writer, &text); }
    generation_end(writer->generator, text.generation);
    count_state(writer); /* before anybody sees the end */
    finish_batch(slot, text.batch, status);
}

/* Puts the tokens of a text into its stream, if it has one, and ends the text if it is complete. */
static void stream_text(struct writer *writer, struct thread_slot *slot, unsigned at)
{
    struct text *text = &writer->texts[at];
    const struct generation *generation = text->generation;
    struct token_stream *stream = text->batch->rows[0]->request->writing->stream;
    enum status status = STATUS_OK;
    if (stream) {
        status = token_stream_put(stream, generation->sequence.ids + text->prompt_tokens, generation->ends,
                                  text->tokens, generation->out.text.data, &text->batch->err);
    }
    if (status != STATUS_OK || generation->finish != FINISH_NONE) { end_text(writer, slot, at, status); }
}

static void begin_text(struct writer *writer, struct thread_slot *slot, struct batch *batch)
{
    const struct row *row = batch->rows[0];
    struct writing *writing = row->request->writing;
    struct generate_request request = {.prompt = row->ids,
                                       .prompt_tokens = row->tokens,
                                       .max_tokens = writing->max_tokens,
                                       .sampling = writing->sampling,
                                       .stops = writing->stops,
                                       .stop_count = writing->stop_count,
                                       .logprobs = writing->top_logprobs,
                                       .inside = !writing->messages};
    struct text *text = &writer->texts[writer->count];
    *text = (struct text){.batch = batch, .prompt_tokens = row->tokens};
    batch->started_ns = clock_now_ns();
    if (writing->stream) { request.written_tokens = token_stream_written(writing->stream, &request.written); }
    enum status status = generator_add(writer->generator, &request, &text->generation, &batch->err);
    if (status != STATUS_OK) {
        finish_batch(slot, batch, status);
        return;
    }
    writer->count++;
    text->tokens = text->generation->sequence.count - text->prompt_tokens;
    if (text->tokens > 0) {
        writing->first_ns = batch->started_ns;
        stream_text(writer, slot, writer->count - 1);
    }
}

/* Why a text goes on no longer, complete or not; STATUS_OK: it does. */
static enum status look_at_text(const struct writer *writer, const struct text *text, uint64_t now_ns)
{
    struct batch *batch = text->batch;
    bool dropped = atomic_load_explicit(&batch->dropped, memory_order_relaxed) || atomic_load(&writer->closing);
    if (dropped) { return err_set(&batch->err, STATUS_UNAVAILABLE, "nobody needs this text any more"); }
    bool late = batch->ends_ns != 0 && now_ns >= batch->ends_ns;
    return late ? err_set(&batch->err, STATUS_TIMEOUT, "its time is over") : STATUS_OK;
}

/* Notes what a step has drawn. */
static void count_step(struct writer *writer, uint64_t now_ns)
{
    struct writer_counts *counts = &writer->counts;
    pthread_mutex_lock(&writer->lock);
    counts->generator = generator_state(writer->generator);
    for (unsigned at = 0; at < writer->count; at++) {
        struct text *text = &writer->texts[at];
        struct request *request = text->batch->rows[0]->request;
        uint32_t tokens = text->generation->sequence.count - text->prompt_tokens;
        if (tokens == text->tokens) { continue; }
        if (text->tokens == 0) {
            request->writing->first_ns = now_ns;
            histogram_add(&counts->first_token, (uint64_t)(reply_first_token_ms(request) * (double)NS_PER_MS));
        } else if (text->latest_ns != 0) {
            histogram_add(&counts->inter_token, now_ns - text->latest_ns);
        }
        counts->tokens += tokens - text->tokens;
        text->tokens = tokens;
        text->latest_ns = now_ns;
    }
    pthread_mutex_unlock(&writer->lock);
}

/* After a step: ends the texts that are complete. */
static void take_step(struct writer *writer, struct thread_slot *slot)
{
    uint64_t now_ns = clock_now_ns();
    count_step(writer, now_ns);
    for (unsigned at = writer->count; at-- > 0;) {
        struct text *text = &writer->texts[at];
        atomic_store_explicit(&text->batch->stepped_ns, now_ns, memory_order_relaxed);
        stream_text(writer, slot, at);
    }
}

static void writer_serve(void *context, struct thread_slot *slot)
{
    struct writer *writer = context;
    for (;;) {
        struct batch *batch = writer->count < TEXTS ? thread_pool_next(slot) : NULL;
        if (batch) {
            begin_text(writer, slot, batch);
            continue;
        }
        uint64_t now_ns = clock_now_ns();
        if (writer->count == 0) { return; }
        for (unsigned at = writer->count; at-- > 0;) {
            enum status why = look_at_text(writer, &writer->texts[at], now_ns);
            if (why != STATUS_OK) { end_text(writer, slot, at, why); }
        }
        if (writer->count == 0) { continue; }
        struct err err;
        if (generator_step(writer->generator, &err) == STATUS_OK) {
            take_step(writer, slot);
            continue;
        }
        while (writer->count > 0) {
            writer->texts[0].batch->err = err;
            end_text(writer, slot, 0, STATUS_DEVICE_LOST);
        }
    }
}

/* --- the owner --- */

static enum status open_parts(struct writer *writer, struct engine *engine, const struct model *model, unsigned threads,
                              int wake_fd, struct err *err)
{
    struct generator_options options = {.blocks = writer_blocks(engine, model, USUAL_TOKENS), .steps.share = true};
    TRY(generator_open(engine, model, &options, &writer->generator, err));
    writer->counts.generator = generator_state(writer->generator);
    if (threads > 1) {
        TRY(parallel_for_open(threads, &writer->parallel, err));
        TRY(generator_join(writer->generator, writer->parallel, err));
    }
    struct thread_pool_options pool = {.name = "writer",
                                       .threads = 1,
                                       .capacity = TEXTS,
                                       .wake_fd = wake_fd,
                                       .serve = writer_serve,
                                       .contexts = writer,
                                       .context_bytes = sizeof *writer};
    return thread_pool_open(&pool, &writer->pool, err);
}

enum status writer_open(struct engine *engine, const struct model *model, unsigned threads, int wake_fd,
                        struct writer **out, struct err *err)
{
    *out = NULL;
    struct writer *writer = calloc(1, sizeof *writer);
    if (!writer) { return err_set(err, STATUS_NO_MEMORY, "no memory for a thread that writes texts"); }
    pthread_mutex_init(&writer->lock, NULL);
    writer->counts.first_token.bounds = writer->counts.inter_token.bounds = &histogram_times;
    enum status status = open_parts(writer, engine, model, threads, wake_fd, err);
    if (status == STATUS_OK) {
        *out = writer;
    } else {
        writer_close(writer);
    }
    return status;
}

void writer_put(struct writer *writer, struct batch *batch)
{
    thread_pool_put(writer->pool, batch);
}

struct batch *writer_take(struct writer *writer)
{
    return thread_pool_take(writer->pool);
}

void writer_counts(struct writer *writer, struct writer_counts *out)
{
    pthread_mutex_lock(&writer->lock);
    *out = writer->counts;
    pthread_mutex_unlock(&writer->lock);
}

void writer_close(struct writer *writer)
{
    if (!writer) { return; }
    atomic_store(&writer->closing, true);
    thread_pool_close(writer->pool);
    generator_close(writer->generator);
    parallel_for_close(writer->parallel);
    pthread_mutex_destroy(&writer->lock);
    free(writer);
}
