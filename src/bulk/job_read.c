/* Reading: a slice is filled by the job's thread, prepared by a prep thread, and then waits in its window. */
#include <stdlib.h>
#include <string.h>

#include "bulk/job_state.h"
#include "serve/crew.h"

enum { SLICES_OUT_MAX = 1024 };

struct prep_thread {
    const struct preparer *preparer;
    struct buffer scratch;
};

static void prepare(void *context, void *item)
{
    struct prep_thread *thread = context;
    slice_prepare(item, thread->preparer, &thread->scratch);
}

enum status job_prep_open(struct job *job, struct err *err)
{
    unsigned threads = job->options->prep_threads;
    void **contexts = calloc(threads, sizeof *contexts);
    job->prep_threads = calloc(threads, sizeof *job->prep_threads);
    enum status status = STATUS_OK;
    if (contexts == NULL || job->prep_threads == NULL)
        status = err_set(err, STATUS_NO_MEMORY, "no memory for %u prep threads", threads);
    for (unsigned i = 0; i < threads && status == STATUS_OK; i++) {
        job->prep_threads[i].preparer = &job->preparer;
        contexts[i] = &job->prep_threads[i];
    }
    struct crew_options crew = {.name = "prep",
                                .threads = threads,
                                .capacity = SLICES_OUT_MAX,
                                .wake_fd = job->options->wake_fd,
                                .work = prepare,
                                .contexts = contexts};
    if (status == STATUS_OK)
        status = crew_open(&crew, &job->prep, err);
    free(contexts);
    return status;
}

void job_prep_close(struct job *job)
{
    if (job->prep != NULL) {
        crew_stop(job->prep);
        crew_free(job->prep);
    }
    for (unsigned i = 0; job->prep_threads != NULL && i < job->options->prep_threads; i++)
        buffer_free(&job->prep_threads[i].scratch);
    free(job->prep_threads);
}

/* A document that failed counts as failed, whatever its bytes are: it has no vector that they could be wrong for. */
void job_digest_add(XXH3_state_t *digest, const struct document *document)
{
    bool good = document->code == ROW_OK;
    uint64_t head[] = {good, document->id_bytes, document->kept_bytes, document->hash.low, document->hash.high};
    XXH3_128bits_update(digest, head, good ? sizeof head : sizeof head[0]);
    if (good && document->id_bytes > 0)
        XXH3_128bits_update(digest, document->id, document->id_bytes);
    if (good && document->kept_bytes > 0)
        XXH3_128bits_update(digest, document->kept, document->kept_bytes);
}

struct hash job_digest_now(const struct job *job)
{
    XXH128_hash_t hash = XXH3_128bits_digest(job->digest);
    return (struct hash){hash.low64, hash.high64};
}

static struct look *reading(struct job *job)
{
    return &job->windows[job->read % WINDOWS];
}

static void send_slice(struct job *job)
{
    struct slice *slice = job->open_slice;
    if (slice == NULL)
        return;
    job->open_slice = NULL;
    slice->window = reading(job);
    slice->window->slices_out++;
    look_push(slice->window, slice);
    crew_put(job->prep, slice);
}

/* About how many chunks a document makes, rather too many: a token of a language with few letters has two bytes. */
static uint64_t count_pieces(const struct job *job, const struct document *document)
{
    const struct chunking *chunking = &job->options->preparer.chunking;
    return chunking->tokens == 0 ? 1 : 1 + document->text_bytes / (2 * (chunking->tokens - chunking->overlap));
}

static enum status add(struct job *job, const struct document *document, struct err *err)
{
    for (bool added = false; !added;) {
        if (job->open_slice == NULL) {
            job->open_slice = job->idle != NULL ? job->idle : slice_new();
            if (job->open_slice == NULL)
                return err_set(err, STATUS_NO_MEMORY, "no memory to read texts");
            job->idle = job->idle != NULL ? job->idle->next : NULL;
            job->open_slice->next = NULL;
        }
        TRY(slice_add(job->open_slice, document, &added, err));
        if (!added)
            send_slice(job);
    }
    reading(job)->documents++;
    reading(job)->pieces += count_pieces(job, document);
    reading(job)->bytes += document->text_bytes + document->id_bytes + document->kept_bytes;
    return STATUS_OK;
}

/* The input ends here for this run; what was read before is finished first. */
static void end_with(struct job *job, enum status status, const struct err *err)
{
    job->ended = true;
    job->ending = status;
    if (status != STATUS_OK)
        job->ending_err = *err;
}

static bool is_fatal(struct job *job, const struct document *document)
{
    struct err err;
    if (document->code == ROW_OK || !job->options->strict)
        return false;
    end_with(job,
             err_set(&err, STATUS_BAD_INPUT, "%s line %llu: %.*s",
                     strcmp(document->file, "-") == 0 ? "standard input" : document->file,
                     (unsigned long long)document->line, (int)document->message_bytes, document->message),
             &err);
    return true;
}

static bool is_full(struct job *job)
{
    const struct look *window = reading(job);
    uint64_t pieces = LOOK_AHEAD_VECTORS_BYTES / (job->options->dim * sizeof(float));
    if (job->options->look_ahead < pieces)
        pieces = job->options->look_ahead;
    return window->documents >= job->options->look_ahead || window->bytes >= LOOK_AHEAD_BYTES ||
           window->pieces >= pieces;
}

/* The window is full, or there is no more. */
static void close_window(struct job *job)
{
    struct look *window = reading(job);
    send_slice(job);
    window->end_documents = job->progress.documents;
    window->end_bytes = source_read_bytes(job->source);
    window->end_digest = job_digest_now(job);
    if (window->documents > 0)
        job->read++;
}

static enum status take(struct job *job, struct document *document, struct err *err)
{
    bool wanted = true;
    if (job->retry != NULL)
        TRY(job_retry_wants(job, document, &wanted, err));
    if (wanted && is_fatal(job, document))
        return STATUS_OK;
    if (wanted)
        TRY(add(job, document, err));
    if (job->retry == NULL)
        job_digest_add(job->digest, document);
    job->progress.documents++;
    return STATUS_OK;
}

/* The next document of this run. */
static enum status next_document(struct job *job, struct document *out, bool *more, struct err *err)
{
    *more = false;
    if (job_retry_at_end(job)) {
        return STATUS_OK;
    }
    if (job->grown) {
        job->grown = false;
        *more = true;
        *out = job->ahead;
        return STATUS_OK;
    }
    return source_next(job->source, out, more, err);
}

enum status job_read(struct job *job, bool *worked, struct err *err)
{
    if (job->ended || job->stopping || job->read - job->finished >= WINDOWS ||
        crew_out(job->prep) + 2 >= SLICES_OUT_MAX)
        return STATUS_OK;
    *worked = true;
    for (int i = 0; i < STEP && !job->ended && !is_full(job); i++) {
        struct document document;
        bool more = false;
        struct err why = {0};
        enum status status = next_document(job, &document, &more, &why);
        if (status != STATUS_OK || !more) {
            end_with(job, status, &why);
        } else {
            TRY(take(job, &document, err));
        }
    }
    if (job->ended || is_full(job))
        close_window(job);
    return STATUS_OK;
}

enum status job_take_prepared(struct job *job, bool *worked, struct err *err)
{
    for (struct slice *slice; (slice = crew_take(job->prep)) != NULL;) {
        *worked = true;
        slice->window->slices_out--;
        if (slice->status != STATUS_OK) {
            *err = slice->err;
            return slice->status;
        }
    }
    return STATUS_OK;
}
