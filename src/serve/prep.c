#include "serve/prep.h"

#include <stdlib.h>

#include "serve/crew.h"
#include "work/prepare.h"
#include "work/reply.h"

enum { JOBS = 64, JOB_REQUESTS = 64 };

struct prep_job {
    enum prep_kind kind;
    const struct model *model;
    struct request_list requests;
};

struct prep {
    struct crew *crew;
    unsigned threads;
    struct prep_job jobs[JOBS];
    struct prep_job *idle[JOBS];
    unsigned idle_count;
    struct request_list waiting[PREP_KINDS];
};

static void work(void *context, void *item)
{
    (void)context;
    struct prep_job *job = item;
    for (struct request *request = job->requests.first; request != NULL; request = request->next)
        if (job->kind == PREP_PREPARE)
            prepare_request(request, job->model);
        else
            reply_format(request);
}

/* Fills idle jobs with waiting requests. Replies first: they end requests, which makes room for new ones. */
static void start_waiting(struct prep *prep)
{
    for (int kind = PREP_KINDS - 1; kind >= 0; kind--) {
        struct request_list *waiting = &prep->waiting[kind];
        uint32_t share = waiting->count / prep->threads + 1;
        uint32_t size = share < JOB_REQUESTS ? share : JOB_REQUESTS;
        while (waiting->count > 0 && prep->idle_count > 0) {
            struct prep_job *job = prep->idle[--prep->idle_count];
            job->kind = (enum prep_kind)kind;
            for (uint32_t i = 0; i < size && waiting->count > 0; i++)
                request_list_push(&job->requests, request_list_pop(waiting));
            crew_put(prep->crew, job);
        }
    }
}

enum status prep_open(const struct model *model, unsigned threads, int wake_fd, struct prep **out, struct err *err)
{
    struct prep *prep = calloc(1, sizeof *prep);
    if (prep == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the prep pool");
    prep->threads = threads;
    for (; prep->idle_count < JOBS; prep->idle_count++) {
        prep->jobs[prep->idle_count].model = model;
        prep->idle[prep->idle_count] = &prep->jobs[prep->idle_count];
    }
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

void prep_put(struct prep *prep, enum prep_kind kind, struct request_list *requests)
{
    request_list_join(&prep->waiting[kind], requests);
    start_waiting(prep);
}

void prep_take(struct prep *prep, struct request_list done[PREP_KINDS])
{
    struct prep_job *job;
    while ((job = crew_take(prep->crew)) != NULL) {
        request_list_join(&done[job->kind], &job->requests);
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
