/* Streams of the host table, and their work. */
#include <stdlib.h>
#include <string.h>

#include "cuda_host_private.h"
#include "simt.h"

/* --- Enqueued work, and when it runs --- */

/* Work */

struct host_work *host_work_new(enum host_work_kind kind)
{
    struct host_work *work = calloc(1, sizeof *work);
    if (work == NULL) { abort(); }
    work->kind = kind;
    work->references = 1;
    return work;
}

static struct host_work *host_work_keep(struct host_work *work)
{
    work->references++;
    return work;
}

static void host_mark_drop(struct host_mark *mark)
{
    if (mark != NULL && --mark->references == 0) { free(mark); }
}

static void host_work_drop(struct host_work *work)
{
    if (--work->references > 0) { return; }
    if (work->kind == WORK_COPY) { free(work->as.copy.snapshot); }
    if (work->kind == WORK_LAUNCH) { free(work->as.launch.argument); }
    if (work->kind == WORK_RECORD || work->kind == WORK_WAIT) { host_mark_drop(work->as.mark); }
    free(work);
}

static void host_list_add(struct host_list *list, struct host_work *work)
{
    struct host_node *node = malloc(sizeof *node);
    if (node == NULL) { abort(); }
    *node = (struct host_node){NULL, work};
    if (list->first == NULL) {
        list->first = node;
    } else {
        list->last->next = node;
    }
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

static void host_list_clear(struct host_list *list)
{
    while (list->first != NULL) { host_work_drop(list_take(list)); }
}

/* Running */

static void run_kernel(const struct host_launch *launch)
{
    void *arguments[] = {launch->argument};
    simt_watch(false); /* no watch for races: the kernels' own tests have it */
    if (simt_launch(launch->kernel, launch->grid, launch->block, arguments, launch->shared_bytes, NULL) !=
        cudaSuccess) {
        (void)host_misuse("a kernel failed: %s", simt_complaint());
    }
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

/* Returns whether a stream's next piece of work may run now. */
static bool is_ready(const struct host_stream *stream)
{
    const struct host_device *device = &host.devices[stream->object.device];
    if (stream->waiting.first == NULL || device->hangs || device->lost != cudaSuccess) { return false; }
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
    while (from != NULL && from->kind != HOST_STREAM) { from = from->next; }
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
        if (s != but && count < sizeof ready / sizeof ready[0] && is_ready(s)) { ready[count++] = s; }
    }
    if (count == 0) { return false; }
    run_next(ready[host.options.order == CUDA_HOST_SHUFFLED ? random_number() % count : 0]);
    return true;
}

/* Runs one piece of work that brings a stream forward: its next, or the work for which that waits. False: a device on
 * the way hangs or is lost. */
static bool run_towards(struct host_stream *stream)
{
    while (!is_ready(stream)) {
        const struct host_device *device = &host.devices[stream->object.device];
        if (device->hangs || device->lost != cudaSuccess || stream->waiting.first == NULL) { return false; }
        stream = stream->waiting.first->work->as.mark->stream;
    }
    run_next(stream);
    return true;
}

/* Runs one piece of work, which brings the stream forward unless the order puts another first. False: nothing can run
 * now. The device's memory stays open until host_memory_shut. */
static bool host_run_one(struct host_stream *wanted)
{
    if (host.options.order == CUDA_HOST_OTHERS && run_any(wanted)) { return true; }
    if (host.options.order == CUDA_HOST_SHUFFLED) { return run_any(NULL); }
    return run_towards(wanted);
}

/* Waits until another thread changes something. No device's memory may be touched meanwhile. */
static void block(void)
{
    host_memory_shut();
    pthread_cond_wait(&host_changed, &host_mutex);
}

/* Runs work until the stream has none left, or, with a mark, until that is done. */
static cudaError_t host_drain(struct host_stream *stream, const struct host_mark *mark)
{
    cudaError_t lost = cudaSuccess;
    while (lost == cudaSuccess && (mark != NULL ? !mark->done : stream->waiting.first != NULL)) {
        if (!host_run_one(stream) && host.devices[stream->object.device].lost == cudaSuccess) { block(); }
        lost = host.devices[stream->object.device].lost;
    }
    host_memory_shut();
    return lost;
}

cudaError_t host_drain_device(int device)
{
    cudaError_t answer = cudaSuccess;
    for (struct host_stream *s = next_stream(host.objects); s != NULL; s = next_stream(s->object.next)) {
        if (device >= 0 && s->object.device != device) { continue; }
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
        while (stream->waiting.first != NULL && run_towards(stream)) { continue; }
    }
    if (host.options.order == CUDA_HOST_SHUFFLED) {
        while (random_number() % 3 == 0 && run_any(NULL)) { continue; }
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

/* --- Streams and events --- */

struct host_stream *host_stream_for_work(cudaStream_t handle, const char *call)
{
    struct host_stream *stream = host_object(handle, HOST_STREAM, call);
    if (stream == NULL) { return NULL; }
    if (stream->object.device != host_current_device()) {
        (void)host_misuse("%s: the stream is of device %d, but device %d is current", call, stream->object.device,
                          host_current_device());
        return NULL;
    }
    return stream;
}

cudaError_t host_cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    ENTER(cudaStreamCreateWithFlags);
    if (flags != cudaStreamNonBlocking) {
        return host_leave(
            host_misuse("cudaStreamCreateWithFlags: not cudaStreamNonBlocking: such a stream waits for the "
                        "default one, which libraries use"));
    }
    *out = host_object_new(HOST_STREAM, sizeof(struct host_stream));
    return host_leave(cudaSuccess);
}

cudaError_t host_cudaStreamDestroy(cudaStream_t handle)
{
    ENTER(cudaStreamDestroy);
    struct host_stream *stream = host_object(handle, HOST_STREAM, "cudaStreamDestroy");
    if (stream == NULL) { return host_leave(cudaErrorInvalidResourceHandle); }
    if (stream->recording != NULL) {
        return host_leave(host_misuse("cudaStreamDestroy: the stream is being captured"));
    }
    stream->object.destroyed = true; /* its remaining work is done */
    return host_leave(cudaSuccess);
}

cudaError_t host_cudaStreamSynchronize(cudaStream_t handle)
{
    ENTER(cudaStreamSynchronize);
    struct host_stream *stream = host_object(handle, HOST_STREAM, "cudaStreamSynchronize");
    if (stream == NULL) { return host_leave(cudaErrorInvalidResourceHandle); }
    if (host_capture_forbids("cudaStreamSynchronize")) { return host_leave(cudaErrorStreamCaptureUnsupported); }
    return host_leave(host_drain(stream, NULL));
}

cudaError_t host_cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned flags)
{
    ENTER(cudaStreamWaitEvent);
    struct host_stream *stream = host_stream_for_work(handle, "cudaStreamWaitEvent");
    struct host_event *event = host_object(event_handle, HOST_EVENT, "cudaStreamWaitEvent");
    if (stream == NULL || event == NULL || flags != 0) { return host_leave(cudaErrorInvalidResourceHandle); }
    if (stream->recording != NULL) {
        stream->spoilt = true;
        return host_leave(host_misuse("cudaStreamWaitEvent: one stream is captured alone; it cannot wait for others"));
    }
    if (event->mark == NULL) { return host_leave(cudaSuccess); /* never recorded: nothing to wait for */ }
    struct host_work *work = host_work_new(WORK_WAIT);
    work->as.mark = event->mark;
    event->mark->references++;
    host_enqueue(stream, work);
    return host_leave(cudaSuccess);
}

/* Events */

cudaError_t host_cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    ENTER(cudaEventCreateWithFlags);
    if ((flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming)) != 0) {
        return host_leave(host_misuse("cudaEventCreateWithFlags: flags %#x", flags));
    }
    struct host_event *event = host_object_new(HOST_EVENT, sizeof *event);
    event->timed = (flags & cudaEventDisableTiming) == 0;
    *out = (cudaEvent_t)event;
    return host_leave(cudaSuccess);
}

cudaError_t host_cudaEventDestroy(cudaEvent_t handle)
{
    ENTER(cudaEventDestroy);
    struct host_event *event = host_object(handle, HOST_EVENT, "cudaEventDestroy");
    if (event == NULL) { return host_leave(cudaErrorInvalidResourceHandle); }
    event->object.destroyed = true;
    return host_leave(cudaSuccess);
}

cudaError_t host_cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle)
{
    ENTER(cudaEventRecord);
    struct host_stream *stream = host_stream_for_work(stream_handle, "cudaEventRecord");
    struct host_event *event = host_object(handle, HOST_EVENT, "cudaEventRecord");
    if (stream == NULL || event == NULL) { return host_leave(cudaErrorInvalidResourceHandle); }
    if (event->object.device != stream->object.device) {
        return host_leave(host_misuse("cudaEventRecord: the event is of device %d, the stream of device %d",
                                      event->object.device, stream->object.device));
    }
    if (stream->recording != NULL) {
        stream->spoilt = true;
        return host_leave(host_misuse("cudaEventRecord: one stream is captured alone; others cannot wait for it"));
    }
    struct host_mark *mark = calloc(1, sizeof *mark);
    if (mark == NULL) { abort(); }
    *mark = (struct host_mark){.references = 2, .stream = stream}; /* the event's and the work's */
    host_mark_drop(event->mark);
    event->mark = mark;
    struct host_work *work = host_work_new(WORK_RECORD);
    work->as.mark = mark;
    host_enqueue(stream, work);
    return host_leave(cudaSuccess);
}

cudaError_t host_cudaEventSynchronize(cudaEvent_t handle)
{
    ENTER(cudaEventSynchronize);
    struct host_event *event = host_object(handle, HOST_EVENT, "cudaEventSynchronize");
    if (event == NULL) { return host_leave(cudaErrorInvalidResourceHandle); }
    if (host_capture_forbids("cudaEventSynchronize")) { return host_leave(cudaErrorStreamCaptureUnsupported); }
    struct host_mark *mark = event->mark;
    if (mark == NULL) { return host_leave(cudaSuccess); }
    mark->references++;
    cudaError_t answer = host_drain(mark->stream, mark);
    host_mark_drop(mark);
    return host_leave(answer);
}

cudaError_t host_cudaEventQuery(cudaEvent_t handle)
{
    ENTER(cudaEventQuery);
    struct host_event *event = host_object(handle, HOST_EVENT, "cudaEventQuery");
    if (event == NULL) { return host_leave(cudaErrorInvalidResourceHandle); }
    if (host_capture_forbids("cudaEventQuery")) { return host_leave(cudaErrorStreamCaptureUnsupported); }
    if (event->mark == NULL || event->mark->done) { return host_leave(cudaSuccess); }
    (void)host_run_one(event->mark->stream);
    host_memory_shut();
    return host_leave(cudaErrorNotReady);
}

cudaError_t host_cudaEventElapsedTime(float *out, cudaEvent_t from_handle, cudaEvent_t to_handle)
{
    ENTER(cudaEventElapsedTime);
    struct host_event *from = host_object(from_handle, HOST_EVENT, "cudaEventElapsedTime");
    struct host_event *to = host_object(to_handle, HOST_EVENT, "cudaEventElapsedTime");
    if (from == NULL || to == NULL) { return host_leave(cudaErrorInvalidResourceHandle); }
    if (!from->timed || !to->timed || from->mark == NULL || to->mark == NULL) {
        return host_leave(host_misuse("cudaEventElapsedTime: an event that takes no time, or was never recorded"));
    }
    if (!from->mark->done || !to->mark->done) { return host_leave(cudaErrorNotReady); }
    *out = (float)((double)(int64_t)(to->mark->time_ns - from->mark->time_ns) * 1e-6);
    return host_leave(cudaSuccess);
}

/* --- Copies, fills, kernels, and graphs of these --- */

/* The kind of memory a pointer points to. */
enum place { ON_DEVICE, PINNED, ORDINARY };

/* Finds the kind, and checks that memory of the table's has `bytes` from the address on. False: a misuse was reported.
 */
static bool find_place(const void *address, size_t bytes, int device, const char *what, enum place *out)
{
    const struct host_block *block = host_block_of(address, 0);
    if (block != NULL && block->device == HOST_PINNED && host_block_of(address, bytes) == NULL) {
        (void)host_misuse("cudaMemcpyAsync: %s: %zu bytes go beyond pinned memory of %zu", what, bytes, block->bytes);
        return false;
    }
    if (block == NULL && !host_is_known(address)) {
        *out = ORDINARY;
        return true;
    }
    *out = block != NULL && block->device == HOST_PINNED ? PINNED : ON_DEVICE;
    return *out == PINNED || host_is_on_device(address, bytes, device, "cudaMemcpyAsync", what);
}

static bool kind_fits(enum cudaMemcpyKind kind, enum place to, enum place from)
{
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return to == ON_DEVICE && from != ON_DEVICE;
    case cudaMemcpyDeviceToHost:
        return to != ON_DEVICE && from == ON_DEVICE;
    case cudaMemcpyDeviceToDevice:
        return to == ON_DEVICE && from == ON_DEVICE;
    case cudaMemcpyDefault:
        return to == ON_DEVICE || from == ON_DEVICE;
    default:
        return false;
    }
}

static struct host_work *new_copy(void *to, const void *from, size_t bytes, bool snapshot)
{
    struct host_work *work = host_work_new(WORK_COPY);
    work->as.copy = (struct host_copy){to, from, bytes, NULL};
    if (!snapshot) { return work; }
    work->as.copy.snapshot = malloc(bytes);
    if (work->as.copy.snapshot == NULL) { abort(); }
    memcpy(work->as.copy.snapshot, from, bytes);
    work->as.copy.from = work->as.copy.snapshot;
    return work;
}

cudaError_t host_cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                                 cudaStream_t handle)
{
    ENTER(cudaMemcpyAsync);
    struct host_stream *stream = host_stream_for_work(handle, "cudaMemcpyAsync");
    if (stream == NULL) { return host_leave(cudaErrorInvalidResourceHandle); }
    if (bytes == 0) { return host_leave(cudaSuccess); }
    enum place to_place;
    enum place from_place;
    if (!find_place(to, bytes, stream->object.device, "where to", &to_place) ||
        !find_place(from, bytes, stream->object.device, "where from", &from_place)) {
        return host_leave(cudaErrorInvalidValue);
    }
    if (!kind_fits(kind, to_place, from_place)) {
        return host_leave(
            host_misuse("cudaMemcpyAsync: the kind of copy (%d) is not what the pointers say", (int)kind));
    }
    bool ordinary = to_place == ORDINARY || from_place == ORDINARY;
    if (ordinary && stream->recording != NULL) {
        stream->spoilt = true;
        return host_leave(host_misuse("cudaMemcpyAsync: a graph cannot copy memory that is not pinned"));
    }
    host_enqueue(stream, new_copy(to, from, bytes, from_place == ORDINARY));
    return host_leave(to_place == ORDINARY ? host_drain(stream, NULL) : cudaSuccess);
}

cudaError_t host_cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t handle)
{
    ENTER(cudaMemsetAsync);
    struct host_stream *stream = host_stream_for_work(handle, "cudaMemsetAsync");
    if (stream == NULL) { return host_leave(cudaErrorInvalidResourceHandle); }
    if (!host_is_on_device(to, bytes, stream->object.device, "cudaMemsetAsync", "where to")) {
        return host_leave(cudaErrorInvalidValue);
    }
    struct host_work *work = host_work_new(WORK_FILL);
    work->as.fill = (struct host_fill){to, value, bytes};
    host_enqueue(stream, work);
    return host_leave(cudaSuccess);
}

cudaError_t host_cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                                  cudaStream_t handle)
{
    ENTER(cudaLaunchKernel);
    struct host_stream *stream = host_stream_for_work(handle, "cudaLaunchKernel");
    if (stream == NULL) { return host_leave(cudaErrorInvalidResourceHandle); }
    size_t bytes = simt_kernel_bytes(kernel);
    if (bytes == 0) { return host_leave(host_misuse("cudaLaunchKernel: not a kernel that the shim knows")); }
    struct host_work *work = host_work_new(WORK_LAUNCH);
    work->as.launch = (struct host_launch){kernel, grid, block, shared_bytes, malloc(bytes)};
    if (work->as.launch.argument == NULL) { abort(); }
    memcpy(work->as.launch.argument, arguments[0], bytes);
    host_enqueue(stream, work);
    return host_leave(cudaSuccess);
}

/* Capture */

static bool forbids(const struct host_stream *stream)
{
    if (stream->recording == NULL || stream->mode == cudaStreamCaptureModeRelaxed) { return false; }
    return stream->mode == cudaStreamCaptureModeGlobal || pthread_equal(stream->recorder, pthread_self());
}

bool host_capture_forbids(const char *call)
{
    bool forbidden = false;
    for (struct host_object *o = host.objects; o != NULL; o = o->next) {
        struct host_stream *stream = (struct host_stream *)o;
        if (o->kind != HOST_STREAM || !forbids(stream)) { continue; }
        stream->spoilt = true;
        forbidden = true;
    }
    if (forbidden) { (void)host_misuse("%s while a stream is being captured", call); }
    return forbidden;
}

cudaError_t host_cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
    ENTER(cudaStreamBeginCapture);
    struct host_stream *stream = host_stream_for_work(handle, "cudaStreamBeginCapture");
    if (stream == NULL) { return host_leave(cudaErrorInvalidResourceHandle); }
    if (stream->recording != NULL) {
        return host_leave(host_misuse("cudaStreamBeginCapture: the stream is being captured already"));
    }
    stream->recording = host_object_new(HOST_GRAPH, sizeof *stream->recording);
    stream->recording->object.destroyed = true; /* no caller has its handle yet */
    stream->mode = mode;
    stream->recorder = pthread_self();
    stream->spoilt = false;
    return host_leave(cudaSuccess);
}

cudaError_t host_cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *out)
{
    ENTER(cudaStreamEndCapture);
    *out = NULL;
    struct host_stream *stream = host_object(handle, HOST_STREAM, "cudaStreamEndCapture");
    if (stream == NULL) { return host_leave(cudaErrorInvalidResourceHandle); }
    if (stream->recording == NULL) {
        return host_leave(host_misuse("cudaStreamEndCapture: the stream is not being captured"));
    }
    struct host_graph *graph = stream->recording;
    stream->recording = NULL;
    if (stream->mode != cudaStreamCaptureModeRelaxed && !pthread_equal(stream->recorder, pthread_self())) {
        return host_leave(host_misuse("cudaStreamEndCapture by another thread than began it"));
    }
    if (stream->spoilt || host_fails()) { /* a capture that fails is over, too */
        return host_leave(cudaErrorStreamCaptureInvalidated);
    }
    graph->object.destroyed = false;
    *out = (cudaGraph_t)graph;
    return host_leave(cudaSuccess);
}

/* Graphs */

static void copy_list(struct host_list *to, const struct host_list *from)
{
    for (const struct host_node *node = from->first; node != NULL; node = node->next) {
        host_list_add(to, host_work_keep(node->work));
    }
}

cudaError_t host_cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t handle, unsigned long long flags)
{
    ENTER(cudaGraphInstantiate);
    struct host_graph *graph = host_object(handle, HOST_GRAPH, "cudaGraphInstantiate");
    if (graph == NULL || flags != 0) { return host_leave(cudaErrorInvalidResourceHandle); }
    if (!host_charge(host_current_device(), host.options.graph_bytes)) { return host_leave(cudaErrorMemoryAllocation); }
    struct host_exec *exec = host_object_new(HOST_EXEC, sizeof *exec);
    copy_list(&exec->work, &graph->work);
    *out = (cudaGraphExec_t)exec;
    return host_leave(cudaSuccess);
}

/* The work of a graph is enqueued piece by piece, so that work of other streams may run in between. */
cudaError_t host_cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle)
{
    ENTER(cudaGraphLaunch);
    struct host_stream *stream = host_stream_for_work(stream_handle, "cudaGraphLaunch");
    struct host_exec *exec = host_object(handle, HOST_EXEC, "cudaGraphLaunch");
    if (stream == NULL || exec == NULL) { return host_leave(cudaErrorInvalidResourceHandle); }
    if (stream->recording != NULL || exec->object.device != stream->object.device) {
        stream->spoilt = true;
        return host_leave(host_misuse("cudaGraphLaunch: into a capture, or on another device than the graph's"));
    }
    for (const struct host_node *node = exec->work.first; node != NULL; node = node->next) {
        host_enqueue(stream, host_work_keep(node->work));
    }
    return host_leave(cudaSuccess);
}

/* Returns whether work of a graph is in a stream and may still run. */
static bool is_running(const struct host_exec *exec)
{
    for (struct host_object *o = host.objects; o != NULL; o = o->next) {
        const struct host_stream *stream = (const struct host_stream *)o;
        if (o->kind != HOST_STREAM || host.devices[o->device].lost != cudaSuccess) { continue; }
        for (const struct host_node *at = stream->waiting.first; at != NULL; at = at->next) {
            for (const struct host_node *own = exec->work.first; own != NULL; own = own->next) {
                if (at->work == own->work) { return true; }
            }
        }
    }
    return false;
}

cudaError_t host_cudaGraphExecDestroy(cudaGraphExec_t handle)
{
    ENTER(cudaGraphExecDestroy);
    struct host_exec *exec = host_object(handle, HOST_EXEC, "cudaGraphExecDestroy");
    if (exec == NULL) { return host_leave(cudaErrorInvalidResourceHandle); }
    if (is_running(exec)) { (void)host_misuse("cudaGraphExecDestroy of a graph that has not run to its end"); }
    exec->object.destroyed = true;
    host_list_clear(&exec->work);
    host_discharge(exec->object.device, host.options.graph_bytes);
    return host_leave(cudaSuccess);
}

cudaError_t host_cudaGraphDestroy(cudaGraph_t handle)
{
    ENTER(cudaGraphDestroy);
    struct host_graph *graph = host_object(handle, HOST_GRAPH, "cudaGraphDestroy");
    if (graph == NULL) { return host_leave(cudaErrorInvalidResourceHandle); }
    graph->object.destroyed = true;
    host_list_clear(&graph->work);
    return host_leave(cudaSuccess);
}
