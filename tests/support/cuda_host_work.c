/* What the host table's streams are given to do: copies, fills, kernels, and graphs of these. */
#include <stdlib.h>
#include <string.h>

#include "cuda_host_private.h"
#include "simt.h"

/* What a pointer points to. */
enum place { ON_DEVICE, PINNED, ORDINARY };

/* Finds out, and checks that memory that was given out holds `bytes` from there. False: a misuse was reported. */
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
    if (!snapshot)
        return work;
    work->as.copy.snapshot = malloc(bytes);
    if (work->as.copy.snapshot == NULL)
        abort();
    memcpy(work->as.copy.snapshot, from, bytes);
    work->as.copy.from = work->as.copy.snapshot;
    return work;
}

cudaError_t host_cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                                 cudaStream_t handle)
{
    ENTER(cudaMemcpyAsync);
    struct host_stream *stream = host_stream_for_work(handle, "cudaMemcpyAsync");
    if (stream == NULL)
        return host_leave(cudaErrorInvalidResourceHandle);
    if (bytes == 0)
        return host_leave(cudaSuccess);
    enum place to_place;
    enum place from_place;
    if (!find_place(to, bytes, stream->object.device, "where to", &to_place) ||
        !find_place(from, bytes, stream->object.device, "where from", &from_place))
        return host_leave(cudaErrorInvalidValue);
    if (!kind_fits(kind, to_place, from_place))
        return host_leave(
            host_misuse("cudaMemcpyAsync: the kind of copy (%d) is not what the pointers say", (int)kind));
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
    if (stream == NULL)
        return host_leave(cudaErrorInvalidResourceHandle);
    if (!host_is_on_device(to, bytes, stream->object.device, "cudaMemsetAsync", "where to"))
        return host_leave(cudaErrorInvalidValue);
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
    if (stream == NULL)
        return host_leave(cudaErrorInvalidResourceHandle);
    size_t bytes = simt_kernel_bytes(kernel);
    if (bytes == 0)
        return host_leave(host_misuse("cudaLaunchKernel: not a kernel that the shim knows"));
    struct host_work *work = host_work_new(WORK_LAUNCH);
    work->as.launch = (struct host_launch){kernel, grid, block, shared_bytes, malloc(bytes)};
    if (work->as.launch.argument == NULL)
        abort();
    memcpy(work->as.launch.argument, arguments[0], bytes);
    host_enqueue(stream, work);
    return host_leave(cudaSuccess);
}

/* Capture */

static bool forbids(const struct host_stream *stream)
{
    if (stream->recording == NULL || stream->mode == cudaStreamCaptureModeRelaxed)
        return false;
    return stream->mode == cudaStreamCaptureModeGlobal || pthread_equal(stream->recorder, pthread_self());
}

bool host_capture_forbids(const char *call)
{
    bool forbidden = false;
    for (struct host_object *o = host.objects; o != NULL; o = o->next) {
        struct host_stream *stream = (struct host_stream *)o;
        if (o->kind != HOST_STREAM || !forbids(stream))
            continue;
        stream->spoilt = true;
        forbidden = true;
    }
    if (forbidden)
        (void)host_misuse("%s while a stream is being captured", call);
    return forbidden;
}

cudaError_t host_cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
    ENTER(cudaStreamBeginCapture);
    struct host_stream *stream = host_stream_for_work(handle, "cudaStreamBeginCapture");
    if (stream == NULL)
        return host_leave(cudaErrorInvalidResourceHandle);
    if (stream->recording != NULL)
        return host_leave(host_misuse("cudaStreamBeginCapture: the stream is being captured already"));
    stream->recording = host_object_new(HOST_GRAPH, sizeof *stream->recording);
    stream->recording->object.destroyed = true; /* nobody has it yet */
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
    if (stream == NULL)
        return host_leave(cudaErrorInvalidResourceHandle);
    if (stream->recording == NULL)
        return host_leave(host_misuse("cudaStreamEndCapture: the stream is not being captured"));
    struct host_graph *graph = stream->recording;
    stream->recording = NULL;
    if (stream->mode != cudaStreamCaptureModeRelaxed && !pthread_equal(stream->recorder, pthread_self()))
        return host_leave(host_misuse("cudaStreamEndCapture by another thread than began it"));
    if (stream->spoilt || host_fails()) /* a capture that fails is over, too */
        return host_leave(cudaErrorStreamCaptureInvalidated);
    graph->object.destroyed = false;
    *out = (cudaGraph_t)graph;
    return host_leave(cudaSuccess);
}

/* Graphs */

static void copy_list(struct host_list *to, const struct host_list *from)
{
    for (const struct host_node *node = from->first; node != NULL; node = node->next)
        host_list_add(to, host_work_keep(node->work));
}

cudaError_t host_cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t handle, unsigned long long flags)
{
    ENTER(cudaGraphInstantiate);
    struct host_graph *graph = host_object(handle, HOST_GRAPH, "cudaGraphInstantiate");
    if (graph == NULL || flags != 0)
        return host_leave(cudaErrorInvalidResourceHandle);
    if (!host_charge(host_current_device(), host.options.graph_bytes))
        return host_leave(cudaErrorMemoryAllocation);
    struct host_exec *exec = host_object_new(HOST_EXEC, sizeof *exec);
    copy_list(&exec->work, &graph->work);
    *out = (cudaGraphExec_t)exec;
    return host_leave(cudaSuccess);
}

/* The work of a graph stands in the stream piece by piece, so that that of other streams may run between. */
cudaError_t host_cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle)
{
    ENTER(cudaGraphLaunch);
    struct host_stream *stream = host_stream_for_work(stream_handle, "cudaGraphLaunch");
    struct host_exec *exec = host_object(handle, HOST_EXEC, "cudaGraphLaunch");
    if (stream == NULL || exec == NULL)
        return host_leave(cudaErrorInvalidResourceHandle);
    if (stream->recording != NULL || exec->object.device != stream->object.device) {
        stream->spoilt = true;
        return host_leave(host_misuse("cudaGraphLaunch: into a capture, or on another device than the graph's"));
    }
    for (const struct host_node *node = exec->work.first; node != NULL; node = node->next)
        host_enqueue(stream, host_work_keep(node->work));
    return host_leave(cudaSuccess);
}

/* Whether work of a graph stands in a stream and may still run. */
static bool is_running(const struct host_exec *exec)
{
    for (struct host_object *o = host.objects; o != NULL; o = o->next) {
        const struct host_stream *stream = (const struct host_stream *)o;
        if (o->kind != HOST_STREAM || host.devices[o->device].lost != cudaSuccess)
            continue;
        for (const struct host_node *at = stream->waiting.first; at != NULL; at = at->next)
            for (const struct host_node *own = exec->work.first; own != NULL; own = own->next)
                if (at->work == own->work)
                    return true;
    }
    return false;
}

cudaError_t host_cudaGraphExecDestroy(cudaGraphExec_t handle)
{
    ENTER(cudaGraphExecDestroy);
    struct host_exec *exec = host_object(handle, HOST_EXEC, "cudaGraphExecDestroy");
    if (exec == NULL)
        return host_leave(cudaErrorInvalidResourceHandle);
    if (is_running(exec))
        (void)host_misuse("cudaGraphExecDestroy of a graph that has not run to its end");
    exec->object.destroyed = true;
    host_list_clear(&exec->work);
    host_discharge(exec->object.device, host.options.graph_bytes);
    return host_leave(cudaSuccess);
}

cudaError_t host_cudaGraphDestroy(cudaGraph_t handle)
{
    ENTER(cudaGraphDestroy);
    struct host_graph *graph = host_object(handle, HOST_GRAPH, "cudaGraphDestroy");
    if (graph == NULL)
        return host_leave(cudaErrorInvalidResourceHandle);
    graph->object.destroyed = true;
    host_list_clear(&graph->work);
    return host_leave(cudaSuccess);
}
