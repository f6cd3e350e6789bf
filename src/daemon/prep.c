#include "daemon/prep.h"

#include <stdlib.h>

#include "compute/thread_pool.h"
#include "schedule/prepare.h"
#include "schedule/reply.h"

enum {
    JOBS = 64,
    JOB_REQUESTS = 64,
    JOB_BYTES = 256 * 1024, /* of entries to prepare, unless a single entry is larger */
    LONG_BYTES = 32 * 1024, /* reading a text of 32 KiB to its end takes a third of a millisecond */
};

struct prep_job {
    enum prep_queue queue;
    struct prep_client *client;
    struct request_list requests;
};

struct prep {
    struct thread_pool *pool;
    unsigned threads;
    struct prep_job jobs[JOBS];
    struct prep_job *idle[JOBS];
    unsigned idle_count;
    unsigned long_jobs, long_most; /* jobs of long texts: out, and the limit */
    struct prep_client *turn;      /* the client to serve next, in the ring of clients */
};

static void prepare_item(void *context, void *item)
{
    (void)context;
    struct prep_job *job = item;
    for (struct request *request = job->requests.first; request != NULL; request = request->next) {
        if (job->queue != PREP_FORMAT_QUEUE) {
            prepare_request(request, job->client->model);
        } else {
            reply_format(request);
        }
    }
}

static bool is_waiting(const struct prep *prep, const struct prep_client *client, enum prep_queue queue)
{
    return client->waiting[queue].count > 0 && (queue != PREP_LONG_QUEUE || prep->long_jobs < prep->long_most);
}

static size_t entry_bytes(const struct request *request)
{
    return request->bytes - request->work_bytes;
}

/* Fills an idle job with waiting requests of a client; false when none wait. Replies go first: they end requests, which
 * makes room for new ones. Long texts are next; their limit leaves room for short ones. */
static bool start_one(struct prep *prep, struct prep_client *client)
{
    enum prep_queue queue = PREP_FORMAT_QUEUE;
    while (queue < PREP_QUEUES && !is_waiting(prep, client, queue)) { queue++; }
    if (queue == PREP_QUEUES) { return false; }
    struct request_list *waiting = &client->waiting[queue];
    uint32_t share = waiting->count / prep->threads + 1;
    uint32_t size = share < JOB_REQUESTS ? share : JOB_REQUESTS;
    struct prep_job *job = prep->idle[--prep->idle_count];
    job->queue = queue;
    job->client = client;
    size_t bytes = 0;
    for (uint32_t i = 0; i < size && waiting->count > 0; i++) {
        bytes += queue == PREP_FORMAT_QUEUE ? 0 : entry_bytes(waiting->first);
        if (i > 0 && bytes > JOB_BYTES) { break; }
        request_list_push(&job->requests, request_list_pop(waiting));
    }
    prep->long_jobs += queue == PREP_LONG_QUEUE;
    thread_pool_put(prep->pool, job);
    return true;
}

/* Clients take turns. Ends after a round in which none had anything to do. */
static void start_waiting(struct prep *prep)
{
    struct prep_client *first_idle = NULL;
    while (prep->idle_count > 0 && prep->turn != first_idle) {
        struct prep_client *client = prep->turn;
        if (start_one(prep, client)) {
            first_idle = NULL;
        } else if (!first_idle) {
            first_idle = client;
        }
        prep->turn = client->next;
    }
}

enum status prep_open(unsigned threads, int wake_fd, struct prep **out, struct err *err)
{
    struct prep *prep = calloc(1, sizeof *prep);
    if (!prep) { return err_set(err, STATUS_NO_MEMORY, "no memory for the prep pool"); }
    prep->threads = threads;
    prep->long_most = threads > 1 ? threads - 1 : 1;
    for (; prep->idle_count < JOBS; prep->idle_count++) {
        prep->idle[prep->idle_count] = &prep->jobs[prep->idle_count];
    }
    struct thread_pool_options options = {
        .name = "prep", .threads = threads, .capacity = JOBS, .wake_fd = wake_fd, .work = prepare_item};
    enum status status = thread_pool_open(&options, &prep->pool, err);
    if (status != STATUS_OK) {
        free(prep);
        return status;
    }
    *out = prep;
    return STATUS_OK;
}

void prep_add(struct prep *prep, struct prep_client *client, const struct model *model)
{
    *client = (struct prep_client){.model = model};
    client->next = prep->turn ? prep->turn->next : client;
    if (!prep->turn) {
        prep->turn = client;
    } else {
        prep->turn->next = client;
    }
}

void prep_put(struct prep *prep, struct prep_client *client, enum prep_kind kind, struct request_list *requests)
{
    if (kind == PREP_FORMAT) {
        request_list_join(&client->waiting[PREP_FORMAT_QUEUE], requests);
    } else {
        for (struct request *request; (request = request_list_pop(requests)) != NULL;) {
            request_list_push(&client->waiting[entry_bytes(request) > LONG_BYTES ? PREP_LONG_QUEUE : PREP_SHORT_QUEUE],
                              request);
        }
    }
    start_waiting(prep);
}

void prep_take(struct prep *prep)
{
    struct prep_job *job;
    while ((job = thread_pool_take(prep->pool))) {
        enum prep_kind kind = job->queue == PREP_FORMAT_QUEUE ? PREP_FORMAT : PREP_PREPARE;
        request_list_join(&job->client->done[kind], &job->requests);
        prep->long_jobs -= job->queue == PREP_LONG_QUEUE;
        prep->idle[prep->idle_count++] = job;
    }
    start_waiting(prep);
}

void prep_close(struct prep *prep)
{
    if (!prep) { return; }
    thread_pool_close(prep->pool);
    free(prep);
}
