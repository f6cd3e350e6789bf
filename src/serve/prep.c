#include "serve/prep.h"

#include <stdlib.h>

#include "serve/thread_pool.h"
#include "work/prepare.h"
#include "work/reply.h"

enum {
    JOBS = 64,
    JOB_REQUESTS = 64,
    JOB_BYTES = 256 * 1024, /* of entries to be prepared, unless one alone is larger */
    LONG_BYTES = 32 * 1024, /* a text of 32 KiB that must be read to its end takes a third of a millisecond */
};

struct prep_job {
    enum prep_queue queue;
    struct prep_desk *desk;
    struct request_list requests;
};

struct prep {
    struct crew *crew;
    unsigned threads;
    struct prep_job jobs[JOBS];
    struct prep_job *idle[JOBS];
    unsigned idle_count;
    unsigned long_jobs, long_most; /* of long texts: that are out, and that may be */
    struct prep_desk *turn;        /* a ring of desks; the next one to be served */
};

static void work(void *context, void *item)
{
    (void)context;
    struct prep_job *job = item;
    for (struct request *request = job->requests.first; request != NULL; request = request->next)
        if (job->queue != QUEUE_FORMAT)
            prepare_request(request, job->desk->model);
        else
            reply_format(request);
}

static bool waits(const struct prep *prep, const struct prep_desk *desk, enum prep_queue queue)
{
    return desk->waiting[queue].count > 0 && (queue != QUEUE_LONG || prep->long_jobs < prep->long_most);
}

static size_t entry_bytes(const struct request *request)
{
    return request->bytes - request->work_bytes;
}

/* Fills one idle job with waiting requests of a desk. Replies first: they end requests, which makes room for new ones.
 * Then long texts, of which few jobs are out, so that the others never wait behind more. False when the desk has
 * nothing to do. */
static bool start_one(struct prep *prep, struct prep_desk *desk)
{
    enum prep_queue queue = QUEUE_FORMAT;
    while (queue < QUEUES && !waits(prep, desk, queue))
        queue++;
    if (queue == QUEUES)
        return false;
    struct request_list *waiting = &desk->waiting[queue];
    uint32_t share = waiting->count / prep->threads + 1;
    uint32_t size = share < JOB_REQUESTS ? share : JOB_REQUESTS;
    struct prep_job *job = prep->idle[--prep->idle_count];
    job->queue = queue;
    job->desk = desk;
    size_t bytes = 0;
    for (uint32_t i = 0; i < size && waiting->count > 0; i++) {
        bytes += queue == QUEUE_FORMAT ? 0 : entry_bytes(waiting->first);
        if (i > 0 && bytes > JOB_BYTES)
            break;
        request_list_push(&job->requests, request_list_pop(waiting));
    }
    prep->long_jobs += queue == QUEUE_LONG;
    crew_put(prep->crew, job);
    return true;
}

/* Ends after a whole round in which no desk had anything to do. */
static void start_waiting(struct prep *prep)
{
    struct prep_desk *first_idle = NULL;
    while (prep->idle_count > 0 && prep->turn != first_idle) {
        struct prep_desk *desk = prep->turn;
        if (start_one(prep, desk))
            first_idle = NULL;
        else if (first_idle == NULL)
            first_idle = desk;
        prep->turn = desk->next;
    }
}

enum status prep_open(unsigned threads, int wake_fd, struct prep **out, struct err *err)
{
    struct prep *prep = calloc(1, sizeof *prep);
    if (prep == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the prep pool");
    prep->threads = threads;
    prep->long_most = threads > 1 ? threads - 1 : 1;
    for (; prep->idle_count < JOBS; prep->idle_count++)
        prep->idle[prep->idle_count] = &prep->jobs[prep->idle_count];
    struct crew_options options = {
        .name = "prep", .threads = threads, .capacity = JOBS, .wake_fd = wake_fd, .work = work};
    enum status status = crew_open(&options, &prep->crew, err);
    if (status != STATUS_OK) {
        free(prep);
        return status;
    }
    *out = prep;
    return STATUS_OK;
}

void prep_add(struct prep *prep, struct prep_desk *desk, const struct model *model)
{
    *desk = (struct prep_desk){.model = model};
    desk->next = prep->turn == NULL ? desk : prep->turn->next;
    if (prep->turn == NULL)
        prep->turn = desk;
    else
        prep->turn->next = desk;
}

void prep_put(struct prep *prep, struct prep_desk *desk, enum prep_kind kind, struct request_list *requests)
{
    if (kind == PREP_FORMAT)
        request_list_join(&desk->waiting[QUEUE_FORMAT], requests);
    for (struct request *request; (request = request_list_pop(requests)) != NULL;)
        request_list_push(&desk->waiting[entry_bytes(request) > LONG_BYTES ? QUEUE_LONG : QUEUE_SHORT], request);
    start_waiting(prep);
}

void prep_take(struct prep *prep)
{
    struct prep_job *job;
    while ((job = crew_take(prep->crew)) != NULL) {
        enum prep_kind kind = job->queue == QUEUE_FORMAT ? PREP_FORMAT : PREP_PREPARE;
        request_list_join(&job->desk->done[kind], &job->requests);
        prep->long_jobs -= job->queue == QUEUE_LONG;
        prep->idle[prep->idle_count++] = job;
    }
    start_waiting(prep);
}

void prep_close(struct prep *prep)
{
    if (prep == NULL)
        return;
    crew_stop(prep->crew);
    crew_free(prep->crew);
    free(prep);
}
