/* Reads the input ahead of the loop, on a thread of its own: files, records, fields, ids, digests. The job's thread
 * gives it empty batches and takes them back full, so as many wait as are out, and memory is bounded. This thread also
 * decides where a window ends, because only it knows the digest of all documents up to there. */
#include <signal.h>
#include <stdlib.h>

#include "bulk/digest.h"
#include "bulk/job_internal.h"
#include "compute/thread_pool.h"

/* Batches that are out at once; documents of a retry that are read for one batch, though none is wanted. */
enum { BATCHES_AHEAD = 16, STEP_MOST = 4096 };

struct reading {
    struct job *job;
    struct thread_pool *pool;
    volatile sig_atomic_t halt; /* written by the job's thread */

    struct document document; /* the latest … */
    bool held;                /* … which waits for a batch */
    uint64_t documents;       /* read so far */
    bool ended;

    /* The window that is being filled. */
    bool first; /* it is the first of a new job */
    uint32_t window_documents;
    size_t bytes;
    uint64_t pieces; /* an estimate */
};

/* --- Its thread --- */

static enum status next_document(struct reading *reading, bool *more, struct err *err)
{
    struct job *job = reading->job;
    *more = false;
    if (job_retry_at_end(job, reading->documents)) { return STATUS_OK; }
    if (job->grown) {
        job->grown = false;
        *more = true;
        reading->document = job->ahead;
        return STATUS_OK;
    }
    return source_next(job->source, &reading->document, more, err);
}

/* Reads a document, which is held unless a retry does not want it. */
static enum status read_document(struct reading *reading, struct buffer *listed, struct err *err)
{
    struct job *job = reading->job;
    struct document *document = &reading->document;
    bool more, wanted = true;
    TRY(next_document(reading, &more, err));
    reading->ended = !more;
    if (!more) { return STATUS_OK; }
    document->fingerprint = job_fingerprint(document);
    if (job->retry) { TRY(job_retry_wants(job, document, listed, &wanted, err)); }
    if (wanted && document->code != ROW_OK && job->options->strict) {
        return err_set(err, STATUS_BAD_INPUT, "%s line %llu: %.*s", job_file_of(document),
                       (unsigned long long)document->line, (int)document->message_bytes, document->message);
    }
    if (!job->retry) { job_digest_add(job->digest, document); }
    reading->documents++;
    reading->held = wanted;
    return STATUS_OK;
}

static void count_document(struct reading *reading)
{
    const struct document *document = &reading->document;
    const struct chunking *chunking = &reading->job->options->preparer.chunking;
    reading->window_documents++;
    reading->bytes += document->text_bytes + document->id_bytes + document->kept_bytes;
    reading->pieces += document->texts > 0 ? document->texts : 1;
    if (chunking->tokens > 0) { /* rather too high: a token has two bytes or more */
        reading->pieces += document->text_bytes / (2 * (chunking->tokens - chunking->overlap));
    }
}

static bool is_full(const struct reading *reading)
{
    const struct job *job = reading->job;
    uint64_t pieces = LOOK_AHEAD_VECTORS_BYTES / (job_row_floats(job) * sizeof(float)), most = job->options->look_ahead;
    return reading->window_documents >= most || reading->bytes >= LOOK_AHEAD_BYTES ||
           reading->pieces >= (most < pieces ? most : pieces);
}

static enum status fill_batch(struct reading *reading, struct doc_batch *docs, struct err *err)
{
    for (int i = 0; i < STEP_MOST && !is_full(reading); i++) {
        bool added;
        if (__atomic_load_n(&reading->halt, __ATOMIC_RELAXED) != 0) { return STATUS_OK; }
        if (!reading->held) { TRY(read_document(reading, &docs->listed, err)); }
        if (reading->ended) { return STATUS_OK; }
        if (!reading->held) { continue; }
        TRY(doc_batch_add(docs, &reading->document, &added, err));
        if (!added) { return STATUS_OK; }
        reading->held = false;
        count_document(reading);
    }
    return STATUS_OK;
}

static void read_batch(void *context, void *item)
{
    struct reading *reading = context;
    struct doc_batch *docs = item;
    const struct source *source = reading->job->source;
    if (!reading->ended) { docs->status = fill_batch(reading, docs, &docs->err); }
    docs->ends = reading->ended = reading->ended || docs->status != STATUS_OK;
    /* A counted document that is in no batch would be missing from the window, and no later run would read it. */
    docs->closes = (docs->ends && !reading->held) || is_full(reading);
    if (docs->closes && reading->first && docs->status == STATUS_OK) {
        docs->status = source_check_fields(source, &docs->err);
        if (docs->status != STATUS_OK) {
            docs->ends = reading->ended = true;
            docs->closes = false; /* nothing is computed */
        }
    }
    if (docs->closes) {
        reading->first = false;
        reading->window_documents = 0;
        reading->bytes = reading->pieces = 0;
    }
    docs->end = (struct input_place){reading->documents, source_duplicates(source), source_share(source),
                                     job_digest_now(reading->job)};
}

/* --- The job's thread --- */

enum status job_read_open(struct job *job, struct err *err)
{
    struct reading *reading = job->reading = calloc(1, sizeof *reading);
    if (!reading) { return err_set(err, STATUS_NO_MEMORY, "no memory to read"); }
    struct thread_pool_options pool = {.name = "read",
                                       .threads = 1,
                                       .capacity = BATCHES_AHEAD,
                                       .wake_fd = job->options->wake_fd,
                                       .contexts = reading,
                                       .context_bytes = sizeof *reading,
                                       .work = read_batch};
    reading->job = job;
    reading->documents = job->progress.documents;
    reading->first = job->at.documents == 0 && !job->retry;
    source_watch(job->source, &reading->halt);
    return thread_pool_open(&pool, &reading->pool, err);
}

enum status job_read_take(struct job *job, struct doc_batch **out, struct err *err)
{
    struct thread_pool *pool = job->reading->pool;
    while (thread_pool_out(pool) < BATCHES_AHEAD) {
        struct doc_batch *docs = doc_batch_new(&job->preparer);
        if (!docs) { return err_set(err, STATUS_NO_MEMORY, "no memory to read texts"); }
        thread_pool_put(pool, docs);
    }
    *out = thread_pool_take(pool);
    return STATUS_OK;
}

void job_read_close(struct job *job)
{
    struct reading *reading = job->reading;
    if (!reading) { return; }
    __atomic_store_n(&reading->halt, 1, __ATOMIC_RELAXED);
    for (struct doc_batch *docs; reading->pool && (docs = thread_pool_wait(reading->pool)) != NULL;) {
        doc_batch_free(docs);
    }
    thread_pool_close(reading->pool);
    source_watch(job->source, job->options->source.stop);
    free(reading);
    job->reading = NULL;
}
