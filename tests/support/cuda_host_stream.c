/* Streams and events of the host table. */
#include <stdlib.h>

#include "cuda_host_private.h"

struct host_stream *host_stream_for_work(cudaStream_t handle, const char *call)
{
    struct host_stream *stream = host_object(handle, HOST_STREAM, call);
    if (stream == NULL)
        return NULL;
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
    if (flags != cudaStreamNonBlocking)
        return host_leave(
            host_misuse("cudaStreamCreateWithFlags: not cudaStreamNonBlocking: such a stream waits for the "
                        "default one, which libraries use"));
    *out = host_object_new(HOST_STREAM, sizeof(struct host_stream));
    return host_leave(cudaSuccess);
}

cudaError_t host_cudaStreamDestroy(cudaStream_t handle)
{
    ENTER(cudaStreamDestroy);
    struct host_stream *stream = host_object(handle, HOST_STREAM, "cudaStreamDestroy");
    if (stream == NULL)
        return host_leave(cudaErrorInvalidResourceHandle);
    if (stream->recording != NULL)
        return host_leave(host_misuse("cudaStreamDestroy: the stream is being captured"));
    stream->object.destroyed = true; /* what it still has to do is done */
    return host_leave(cudaSuccess);
}

cudaError_t host_cudaStreamSynchronize(cudaStream_t handle)
{
    ENTER(cudaStreamSynchronize);
    struct host_stream *stream = host_object(handle, HOST_STREAM, "cudaStreamSynchronize");
    if (stream == NULL)
        return host_leave(cudaErrorInvalidResourceHandle);
    if (host_capture_forbids("cudaStreamSynchronize"))
        return host_leave(cudaErrorStreamCaptureUnsupported);
    return host_leave(host_drain(stream, NULL));
}

cudaError_t host_cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned flags)
{
    ENTER(cudaStreamWaitEvent);
    struct host_stream *stream = host_stream_for_work(handle, "cudaStreamWaitEvent");
    struct host_event *event = host_object(event_handle, HOST_EVENT, "cudaStreamWaitEvent");
    if (stream == NULL || event == NULL || flags != 0)
        return host_leave(cudaErrorInvalidResourceHandle);
    if (stream->recording != NULL) {
        stream->spoilt = true;
        return host_leave(host_misuse("cudaStreamWaitEvent: one stream is captured alone; it cannot wait for others"));
    }
    if (event->mark == NULL)
        return host_leave(cudaSuccess); /* never recorded: nothing to wait for */
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
    if ((flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming)) != 0)
        return host_leave(host_misuse("cudaEventCreateWithFlags: flags %#x", flags));
    struct host_event *event = host_object_new(HOST_EVENT, sizeof *event);
    event->timed = (flags & cudaEventDisableTiming) == 0;
    *out = (cudaEvent_t)event;
    return host_leave(cudaSuccess);
}

cudaError_t host_cudaEventDestroy(cudaEvent_t handle)
{
    ENTER(cudaEventDestroy);
    struct host_event *event = host_object(handle, HOST_EVENT, "cudaEventDestroy");
    if (event == NULL)
        return host_leave(cudaErrorInvalidResourceHandle);
    event->object.destroyed = true;
    return host_leave(cudaSuccess);
}

cudaError_t host_cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle)
{
    ENTER(cudaEventRecord);
    struct host_stream *stream = host_stream_for_work(stream_handle, "cudaEventRecord");
    struct host_event *event = host_object(handle, HOST_EVENT, "cudaEventRecord");
    if (stream == NULL || event == NULL)
        return host_leave(cudaErrorInvalidResourceHandle);
    if (event->object.device != stream->object.device)
        return host_leave(host_misuse("cudaEventRecord: the event is of device %d, the stream of device %d",
                                      event->object.device, stream->object.device));
    if (stream->recording != NULL) {
        stream->spoilt = true;
        return host_leave(host_misuse("cudaEventRecord: one stream is captured alone; others cannot wait for it"));
    }
    struct host_mark *mark = calloc(1, sizeof *mark);
    if (mark == NULL)
        abort();
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
    if (event == NULL)
        return host_leave(cudaErrorInvalidResourceHandle);
    if (host_capture_forbids("cudaEventSynchronize"))
        return host_leave(cudaErrorStreamCaptureUnsupported);
    struct host_mark *mark = event->mark;
    if (mark == NULL)
        return host_leave(cudaSuccess);
    mark->references++;
    cudaError_t answer = host_drain(mark->stream, mark);
    host_mark_drop(mark);
    return host_leave(answer);
}

cudaError_t host_cudaEventQuery(cudaEvent_t handle)
{
    ENTER(cudaEventQuery);
    struct host_event *event = host_object(handle, HOST_EVENT, "cudaEventQuery");
    if (event == NULL)
        return host_leave(cudaErrorInvalidResourceHandle);
    if (host_capture_forbids("cudaEventQuery"))
        return host_leave(cudaErrorStreamCaptureUnsupported);
    if (event->mark == NULL || event->mark->done)
        return host_leave(cudaSuccess);
    (void)host_run_one(event->mark->stream);
    host_memory_shut();
    return host_leave(cudaErrorNotReady);
}

cudaError_t host_cudaEventElapsedTime(float *out, cudaEvent_t from_handle, cudaEvent_t to_handle)
{
    ENTER(cudaEventElapsedTime);
    struct host_event *from = host_object(from_handle, HOST_EVENT, "cudaEventElapsedTime");
    struct host_event *to = host_object(to_handle, HOST_EVENT, "cudaEventElapsedTime");
    if (from == NULL || to == NULL)
        return host_leave(cudaErrorInvalidResourceHandle);
    if (!from->timed || !to->timed || from->mark == NULL || to->mark == NULL)
        return host_leave(host_misuse("cudaEventElapsedTime: an event that takes no time, or was never recorded"));
    if (!from->mark->done || !to->mark->done)
        return host_leave(cudaErrorNotReady);
    *out = (float)((double)(int64_t)(to->mark->time_ns - from->mark->time_ns) * 1e-6);
    return host_leave(cudaSuccess);
}
