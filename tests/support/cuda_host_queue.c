/* What is enqueued in the host table, and when it runs. */
#include <stdlib.h>
#include <string.h>

#include "cuda_host_private.h"
#include "simt.h"

/* Work */

struct host_work *host_work_new(enum host_work_kind kind)
{
    struct host_work *work = calloc(1, sizeof *work);
    if (work == NULL)
        abort();
    work->kind = kind;
    work->references = 1;
    return work;
}

struct host_work *host_work_keep(struct host_work *work)
{
    work->references++;
    return work;
}

void host_mark_drop(struct host_mark *mark)
{
    if (mark != NULL && --mark->references == 0)
        free(mark);
}

void host_work_drop(struct host_work *work)
{
    if (--work->references > 0)
        return;
    if (work->kind == WORK_COPY)
        free(work->as.copy.snapshot);
    if (work->kind == WORK_LAUNCH)
        free(work->as.launch.argument);
    if (work->kind == WORK_RECORD || work->kind == WORK_WAIT)
        host_mark_drop(work->as.mark);
    free(work);
}

void host_list_add(struct host_list *list, struct host_work *work)
{
    struct host_node *node = malloc(sizeof *node);
    if (node == NULL)
        abort();
    *node = (struct host_node){NULL, work};
    if (list->first == NULL)
        list->first = node;
    else
        list->last->next = node;
    list->last = node;
}

static struct host_work *list_take(struct host_list *list)
{
    struct host_node *node = list->first;
    struct host_work *work = node->work;
    list->first = node->next;
    free(node);
    return work;
}

void host_list_clear(struct host_list *list)
{
    while (list->first != NULL)
        host_work_drop(list_take(list));
}

/* Running */

static void run_kernel(const struct host_launch *launch)
{
    void *arguments[] = {launch->argument};
    simt_watch(false); /* for races: the kernels' own tests do */
    if (simt_launch(launch->kernel, launch->grid, launch->block, arguments, launch->shared_bytes, NULL) != cudaSuccess)
        (void)host_misuse("a kernel failed: %s", simt_complaint());
}

static void run_work(const struct host_work *work, struct host_device *device)
{
    switch (work->kind) {
    case WORK_COPY:
        memcpy(work->as.copy.to, work->as.copy.from, work->as.copy.bytes);
        device->clock_ns += 1000;
        break;
    case WORK_FILL:
        memset(work->as.fill.to, work->as.fill.value, work->as.fill.bytes);
        device->clock_ns += 1000;
        break;
    case WORK_LAUNCH:
        run_kernel(&work->as.launch);
        device->clock_ns += 1000;
        break;
    case WORK_PRODUCT:
        host_multiply(&work->as.product);
        device->clock_ns += work->as.product.time_ns;
        break;
    case WORK_RECORD:
        work->as.mark->done = true;
        work->as.mark->time_ns = device->clock_ns;
        break;
    case WORK_WAIT:
        break;
    }
}

/* Whether a stream's next piece of work may run now. */
static bool is_ready(const struct host_stream *stream)
{
    const struct host_device *device = &host.devices[stream->object.device];
    if (stream->waiting.first == NULL || device->hangs || device->lost != cudaSuccess)
        return false;
    const struct host_work *next = stream->waiting.first->work;
    return next->kind != WORK_WAIT || next->as.mark->done;
}

static void run_next(struct host_stream *stream)
{
    struct host_work *work = list_take(&stream->waiting);
    host_memory_open(stream->object.device);
    run_work(work, &host.devices[stream->object.device]);
    host_work_drop(work);
}

static struct host_stream *next_stream(struct host_object *from)
{
    while (from != NULL && from->kind != HOST_STREAM)
        from = from->next;
    return (struct host_stream *)from;
}

static uint64_t random_number(void)
{
    uint64_t x = host.random += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* Runs one piece of work of any stream but `but`. False: none is ready. */
static bool run_any(const struct host_stream *but)
{
    struct host_stream *ready[64];
    size_t count = 0;
    for (struct host_stream *s = next_stream(host.objects); s != NULL; s = next_stream(s->object.next)) {
        if (s != but && count < sizeof ready / sizeof ready[0] && is_ready(s))
            ready[count++] = s;
    }
    if (count == 0)
        return false;
    run_next(ready[host.options.order == CUDA_HOST_SHUFFLED ? random_number() % count : 0]);
    return true;
}

/* Runs one piece of work that brings a stream forward: its next, or what that waits for. False: a device on the way
 * hangs or is lost. */
static bool run_towards(struct host_stream *stream)
{
    while (!is_ready(stream)) {
        const struct host_device *device = &host.devices[stream->object.device];
        if (device->hangs || device->lost != cudaSuccess || stream->waiting.first == NULL)
            return false;
        stream = stream->waiting.first->work->as.mark->stream;
    }
    run_next(stream);
    return true;
}

bool host_run_one(struct host_stream *wanted)
{
    if (host.options.order == CUDA_HOST_OTHERS && run_any(wanted))
        return true;
    if (host.options.order == CUDA_HOST_SHUFFLED)
        return run_any(NULL);
    return run_towards(wanted);
}

/* Waits until another thread changes something. The device's memory is nobody's meanwhile. */
static void block(void)
{
    host_memory_shut();
    host.blocked++;
    pthread_cond_broadcast(&host_changed);
    pthread_cond_wait(&host_changed, &host_mutex);
    host.blocked--;
}

/* Runs work until the stream has none left, or, with a mark, until that is done. */
cudaError_t host_drain(struct host_stream *stream, const struct host_mark *mark)
{
    cudaError_t lost = cudaSuccess;
    while (lost == cudaSuccess && (mark != NULL ? !mark->done : stream->waiting.first != NULL)) {
        if (!host_run_one(stream) && host.devices[stream->object.device].lost == cudaSuccess)
            block();
        lost = host.devices[stream->object.device].lost;
    }
    host_memory_shut();
    return lost;
}

cudaError_t host_drain_device(int device)
{
    cudaError_t answer = cudaSuccess;
    for (struct host_stream *s = next_stream(host.objects); s != NULL; s = next_stream(s->object.next)) {
        if (device >= 0 && s->object.device != device)
            continue;
        cudaError_t lost = host_drain(s, NULL);
        answer = answer == cudaSuccess ? lost : answer;
    }
    return answer;
}

void host_enqueue(struct host_stream *stream, struct host_work *work)
{
    if (stream->recording != NULL) {
        host_list_add(&stream->recording->work, work);
        return;
    }
    host_list_add(&stream->waiting, work);
    if (host.options.order == CUDA_HOST_AT_ONCE) {
        while (stream->waiting.first != NULL && run_towards(stream))
            continue;
    }
    if (host.options.order == CUDA_HOST_SHUFFLED) {
        while (random_number() % 3 == 0 && run_any(NULL))
            continue;
    }
    host_memory_shut();
}

void host_object_release(struct host_object *object)
{
    if (object->kind == HOST_STREAM) {
        struct host_stream *stream = (struct host_stream *)object;
        host_list_clear(&stream->waiting);
    } else if (object->kind == HOST_EVENT) {
        host_mark_drop(((struct host_event *)object)->mark);
    } else if (object->kind == HOST_GRAPH) {
        host_list_clear(&((struct host_graph *)object)->work);
    } else if (object->kind == HOST_EXEC) {
        host_list_clear(&((struct host_exec *)object)->work);
    }
}
