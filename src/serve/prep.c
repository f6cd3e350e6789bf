#include "serve/prep.h"

#include <stdlib.h>

#include "serve/crew.h"
#include "work/prepare.h"
#include "work/reply.h"

enum { JOBS = 64, JOB_REQUESTS = 64 };

struct prep_job {
    enum prep_kind kind;
    struct prep_desk *desk;
    struct request_list requests;
};

struct prep {
    struct crew *crew;
    unsigned threads;
    struct prep_job jobs[JOBS];
    struct prep_job *idle[JOBS];
    unsigned idle_count;
    struct prep_desk *turn; /* a ring of desks; the next one to be served */
};

static void work(void *context, void *item)
{
    (void)context;
    struct prep_job *job = item;
    for (struct request *request = job->requests.first; request != NULL; request = request->next)
        if (job->kind == PREP_PREPARE)
            prepare_request(request, job->desk->model);
        else
            reply_format(request);
}

/* Fills one idle job with waiting requests of a desk. Replies first: they end requests, which makes room for new ones.
 * False when the desk has nothing to do. */
static bool start_one(struct prep *prep, struct prep_desk *desk)
{
    enum prep_kind kind = desk->waiting[PREP_FORMAT].count > 0 ? PREP_FORMAT : PREP_PREPARE;
    struct request_list *waiting = &desk->waiting[kind];
    if (waiting->count == 0)
        return false;
    uint32_t share = waiting->count / prep->threads + 1;
    uint32_t size = share < JOB_REQUESTS ? share : JOB_REQUESTS;
    struct prep_job *job = prep->idle[--prep->idle_count];
    job->kind = kind;
    job->desk = desk;
    for (uint32_t i = 0; i < size && waiting->count > 0; i++)
        request_list_push(&job->requests, request_list_pop(waiting));
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
    request_list_join(&desk->waiting[kind], requests);
    start_waiting(prep);
}

void prep_take(struct prep *prep)
{
    struct prep_job *job;
    while ((job = crew_take(prep->crew)) != NULL) {
        request_list_join(&job->desk->done[job->kind], &job->requests);
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
