/* Requests that wait for the prep threads, or are there: texts to be tokenised, outputs to be encoded. The threads take
 * them in the order in which they were sent, so most of them wait here, where a later request of a higher class can
 * overtake them. */
#include "schedule/worker/prep_queue.h"

#include "base/clock.h"
#include "schedule/worker_internal.h"

enum {
    LIST_MAX =
        32, /* requests in one PREPARE or FORMAT: few crossings, but a burst still spreads over several threads */
    PREP_MAX = 256,   /* requests at the prep threads, beyond which only class high follows */
    PREP_BRIEF = 64,  /* the same limit while urgent requests are around */
    PREP_LOW_MAX = 2, /* requests of class low there, beyond which more of it wait while online requests come */
};

bool prep_queue_send(struct worker *worker, enum action_kind kind, struct request_list *from, uint32_t most)
{
    struct action *action = worker_act(worker, kind);
    if (!action) { return false; }
    while (action->requests.count < most && from->first) {
        struct request *request = request_list_pop(from);
        request->lifetime.state = kind == ACTION_PREPARE ? REQUEST_PREPARING : REQUEST_FORMATTING;
        request_list_push(&action->requests, request);
        worker->prep.out++;
        worker->prep.out_low += request->identity.class == CLASS_LOW;
    }
    return true;
}

/* Moves a request's rows to the window, unless it is the suspect that runs alone. */
static void to_window(struct worker *worker, struct request *request)
{
    if (worker->quarantine.alone == request) {
        quarantine_prepared(worker);
        return;
    }
    if (!worker_takes_more(worker)) {
        leave_release(worker, request);
        return;
    }
    request->lifetime.state = REQUEST_WAITING;
    for (uint32_t i = 0; i < request->row_count; i++) { window_push(&worker->window, &request->rows[i], worker->now); }
}

void prep_queue_tokenised(struct worker *worker, const struct event *event)
{
    struct request_list list = event->requests;
    for (struct request *request = request_list_pop(&list); request != NULL; request = request_list_pop(&list)) {
        worker->prep.out--;
        worker->prep.out_low -= request->identity.class == CLASS_LOW;
        request->lifetime.prepared_ns = worker->now;
        if (request->task == TASK_TOKENIZE) { /* there is nothing to compute */
            request->lifetime.started_ns = request->lifetime.computed_ns = worker->now;
        }
        if (request->retry.code != CODE_NONE || request->task == TASK_TOKENIZE) {
            settle_finish(worker, request);
            continue;
        }
        uint32_t tokens = 0;
        for (uint32_t i = 0; i < request->row_count; i++) { tokens += request->rows[i].tokens; }
        worker->stats.input_tokens += tokens;
        read_note_tokens(worker, request->identity.class, tokens);
        held_weigh(&worker->held, request, tokens);
        to_window(worker, request);
    }
}

void prep_queue_formatted(struct worker *worker, const struct event *event)
{
    struct request_list list = event->requests;
    for (struct request *request = request_list_pop(&list); request != NULL; request = request_list_pop(&list)) {
        worker->prep.out--;
        worker->prep.out_low -= request->identity.class == CLASS_LOW;
        settle_finish(worker, request);
    }
}

/* The number of requests of a class that may go to the prep threads in one list; requests there cannot be overtaken. */
static uint32_t prepare_most(const struct worker *worker, enum request_class class)
{
    if (class != CLASS_HIGH && worker->prep.out >= (pace_is_hurried(worker) ? PREP_BRIEF : PREP_MAX)) { return 0; }
    if (class != CLASS_LOW || !pace_is_online(worker)) { return LIST_MAX; }
    return worker->prep.out_low < PREP_LOW_MAX ? 1 : 0;
}

/* Prepares the highest class first. The others wait here, not in the prep threads' queue, where a later request of a
 * higher class could not overtake them. */
void prep_queue_advance(struct worker *worker)
{
    uint64_t most_bytes = read_credit_bytes(worker);
    for (int c = 0; c < CLASS_COUNT; c++) {
        struct request_list *list = &worker->prep.waiting[c];
        for (uint32_t most; list->first != NULL && (most = prepare_most(worker, (enum request_class)c)) > 0;) {
            uint32_t count = held_begin(&worker->held, list, memory_begins(worker, list, most), most_bytes);
            if (count == 0) { break; }
            struct request *request = list->first;
            for (uint32_t i = 0; i < count; i++, request = request->next) { memory_begun(worker, request); }
            if (!prep_queue_send(worker, ACTION_PREPARE, list, count)) { return; }
        }
    }
}

void prep_queue_accept(struct worker *worker, struct request *request)
{
    pace_accepted(worker, request);
    request_list_push(&worker->prep.waiting[request->identity.class], request);
}

void prep_queue_format(struct worker *worker, struct request *request)
{
    request_list_push(&worker->prep.to_format, request);
}

void prep_queue_send_formats(struct worker *worker)
{
    while (worker->prep.to_format.first && prep_queue_send(worker, ACTION_FORMAT, &worker->prep.to_format, LIST_MAX))
        ;
}

struct request_list prep_queue_take(struct worker *worker, enum request_class class)
{
    struct request_list list = worker->prep.waiting[class];
    worker->prep.waiting[class] = (struct request_list){0};
    return list;
}
