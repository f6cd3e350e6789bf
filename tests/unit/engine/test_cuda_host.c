/* The host table itself: it finds each mistake for which it was made. The other tests of the engine show that it
 * behaves as CUDA does.
 * ctest: threads */
#include "harness.h"

#include <math.h>
#include <pthread.h>

#include "cuda_host.h"
#include "cuda_host_case.h"
#include "simt.h"

enum { COUNT = 100, BYTES = COUNT * sizeof(float) };

/* A kernel of one lane: to[i] = from[i] + 1, of `count` floats. */
struct add_args {
    const float *from;
    float *to;
    uint32_t count;
};

static void add_kernel(const void *argument)
{
    const struct add_args *a = argument;
    for (uint32_t i = 0; i < a->count; i++) { a->to[i] = a->from[i] + 1.0f; }
}

static const void *add_handle(void)
{
    void (*kernel)(const void *) = add_kernel;
    const void *handle;
    memcpy(&handle, &kernel, sizeof handle);
    simt_know_kernel(handle, sizeof(struct add_args));
    return handle;
}

static cudaError_t add(const struct cuda_api *api, const float *from, float *to, uint32_t count, cudaStream_t stream)
{
    struct add_args args = {from, to, count};
    void *arguments[] = {&args};
    dim3 one = {1, 1, 1};
    return api->cudaLaunchKernel(add_handle(), one, one, arguments, 0, stream);
}

static void fill(float *to, float value)
{
    for (int i = 0; i < COUNT; i++) { to[i] = value; }
}

static void assert_all(const float *device, float value)
{
    float got[COUNT];
    cuda_host_peek(got, device, BYTES);
    for (int i = 0; i < COUNT; i++) { assert_true(got[i] == value); }
}

static const struct cuda_api *open_noting(enum cuda_host_order order, uint32_t devices)
{
    misuse_count = 0;
    return cuda_host_open(&(struct cuda_host_options){.order = order, .devices = devices, .misuse = note_misuse});
}

/* When work runs */

/* A copy on one stream, a kernel on another, with or without an event between; and the copy of the next batch into the
 * same buffer, which must wait for the kernel. Returns what the first kernel saw. */
static float two_streams(enum cuda_host_order order, uint64_t seed, bool waits_for_data, bool waits_for_buffer)
{
    const struct cuda_api *api = cuda_host_open(&(struct cuda_host_options){.order = order, .seed = seed});
    cudaStream_t copies = stream_new(api);
    cudaStream_t compute = stream_new(api);
    cudaEvent_t copied = event_new(api);
    cudaEvent_t computed = event_new(api);
    float *batch[2] = {pinned_new(api, BYTES), pinned_new(api, BYTES)};
    float *buffer = device_new(api, BYTES);
    float *result = device_new(api, BYTES);
    fill(batch[0], 1.0f);
    fill(batch[1], 2.0f);
    MUST(api->cudaMemcpyAsync(buffer, batch[0], BYTES, cudaMemcpyHostToDevice, copies));
    MUST(api->cudaEventRecord(copied, copies));
    if (waits_for_data) { MUST(api->cudaStreamWaitEvent(compute, copied, 0)); }
    MUST(add(api, buffer, result, COUNT, compute));
    MUST(api->cudaEventRecord(computed, compute));
    if (waits_for_buffer) { MUST(api->cudaStreamWaitEvent(copies, computed, 0)); }
    MUST(api->cudaMemcpyAsync(buffer, batch[1], BYTES, cudaMemcpyHostToDevice, copies));
    MUST(api->cudaEventSynchronize(computed));
    float got[COUNT];
    MUST(api->cudaMemcpyAsync(got, result, BYTES, cudaMemcpyDeviceToHost, compute));
    MUST(api->cudaStreamDestroy(copies));
    MUST(api->cudaStreamDestroy(compute));
    MUST(api->cudaEventDestroy(copied));
    MUST(api->cudaEventDestroy(computed));
    MUST(api->cudaFree(buffer));
    MUST(api->cudaFree(result));
    MUST(api->cudaFreeHost(batch[0]));
    MUST(api->cudaFreeHost(batch[1]));
    cuda_host_close();
    return got[0];
}

TEST(any_order_is_right_when_all_is_waited_for)
{
    assert_true(two_streams(CUDA_HOST_LATE, 0, true, true) == 2.0f);
    assert_true(two_streams(CUDA_HOST_OTHERS, 0, true, true) == 2.0f);
    assert_true(two_streams(CUDA_HOST_AT_ONCE, 0, true, true) == 2.0f);
    for (uint64_t seed = 0; seed < 50; seed++) {
        assert_true(two_streams(CUDA_HOST_SHUFFLED, seed, true, true) == 2.0f);
    }
}

TEST(a_missing_wait_for_data_shows)
{
    assert_true(isnan(two_streams(CUDA_HOST_LATE, 0, false, true)));
    unsigned wrong = 0;
    for (uint64_t seed = 0; seed < 50; seed++) { wrong += two_streams(CUDA_HOST_SHUFFLED, seed, false, true) != 2.0f; }
    assert_in_range(wrong, 1, 49);
}

TEST(a_missing_wait_for_a_buffer_shows)
{
    assert_true(two_streams(CUDA_HOST_OTHERS, 0, true, false) == 3.0f);
    unsigned wrong = 0;
    for (uint64_t seed = 0; seed < 50; seed++) { wrong += two_streams(CUDA_HOST_SHUFFLED, seed, true, false) != 2.0f; }
    assert_in_range(wrong, 1, 49);
}

/* Graphs */

static cudaGraphExec_t capture_add(const struct cuda_api *api, cudaStream_t stream, float *device)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    MUST(api->cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    MUST(add(api, device, device, COUNT, stream));
    MUST(add(api, device, device, COUNT, stream));
    MUST(api->cudaStreamEndCapture(stream, &graph));
    MUST(api->cudaGraphInstantiate(&exec, graph, 0));
    MUST(api->cudaGraphDestroy(graph));
    return exec;
}

TEST(a_running_graph_may_not_be_destroyed)
{
    const struct cuda_api *api = open_noting(CUDA_HOST_LATE, 1);
    cudaStream_t stream = stream_new(api);
    float *device = device_new(api, BYTES);
    MUST(api->cudaMemsetAsync(device, 0, BYTES, stream));
    cudaGraphExec_t exec = capture_add(api, stream, device), other = capture_add(api, stream, device);
    MUST(api->cudaGraphLaunch(exec, stream));
    MUST(api->cudaGraphExecDestroy(other)); /* it was never launched */
    MUST(api->cudaGraphExecDestroy(exec));
    assert_misuse("has not run to its end");
    MUST(api->cudaStreamSynchronize(stream));
    MUST(api->cudaStreamDestroy(stream));
    MUST(api->cudaFree(device));
    cuda_host_close();
}

TEST(memory_runs_out)
{
    const struct cuda_api *api = cuda_host_open(&(struct cuda_host_options){.memory_bytes = 1000, .devices = 2});
    size_t free_bytes;
    size_t all_bytes;
    void *out = NULL;
    void *more = device_new(api, 700);
    MUST(api->cudaMemGetInfo(&free_bytes, &all_bytes));
    assert_int_equal(all_bytes, 1000);
    assert_int_equal(free_bytes, 1000 - 768);
    assert_int_equal(api->cudaMalloc(&out, 300), cudaErrorMemoryAllocation);
    MUST(api->cudaSetDevice(1)); /* that device has its own memory */
    void *other = device_new(api, 700);
    MUST(api->cudaFree(more));
    MUST(api->cudaFree(other));
    assert_int_equal(cuda_host_held_bytes(0), 0);
    assert_int_equal(cuda_host_most_bytes(0), 768);
    cuda_host_close();
}

struct waiter {
    const struct cuda_api *api;
    cudaStream_t stream;
    cudaError_t answer;
};

static void *use_a_device(void *context)
{
    struct waiter *w = context;
    MUST(w->api->cudaSetDevice(1));
    cudaStream_t stream = stream_new(w->api);
    float *device = device_new(w->api, BYTES);
    for (int i = 0; i < 200; i++) {
        MUST(w->api->cudaMemsetAsync(device, 0, BYTES, stream));
        MUST(add(w->api, device, device, COUNT, stream));
        MUST(w->api->cudaStreamSynchronize(stream));
    }
    assert_all(device, 1.0f);
    MUST(w->api->cudaStreamDestroy(stream));
    MUST(w->api->cudaFree(device));
    return NULL;
}

TEST(threads_use_two_devices)
{
    struct waiter w = {.api = cuda_host_open(&(struct cuda_host_options){.devices = 2})};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) { MUST(pthread_create(&threads[i], NULL, use_a_device, &w)); }
    for (int i = 0; i < 2; i++) { pthread_join(threads[i], NULL); }
    cuda_host_close();
}

/* Deaths: each in a child process */

static void touch_device_memory(void)
{
    const struct cuda_api *api = cuda_host_open(NULL);
    volatile float *device = device_new(api, BYTES);
    device[3] = 1.0f;
}

static void touch_freed_memory(void)
{
    const struct cuda_api *api = cuda_host_open(NULL);
    cudaStream_t stream = stream_new(api);
    float *device = device_new(api, BYTES);
    float *other = device_new(api, BYTES);
    MUST(api->cudaFree(device));
    MUST(add(api, device, other, COUNT, stream));
    MUST(api->cudaStreamSynchronize(stream));
}

static void touch_another_device(void)
{
    const struct cuda_api *api = cuda_host_open(&(struct cuda_host_options){.devices = 2});
    float *mine = device_new(api, BYTES);
    MUST(api->cudaSetDevice(1));
    cudaStream_t stream = stream_new(api);
    float *device = device_new(api, BYTES);
    MUST(add(api, mine, device, COUNT, stream));
    MUST(api->cudaStreamSynchronize(stream));
}

static void overrun_by_a_page(void)
{
    const struct cuda_api *api = cuda_host_open(NULL);
    cudaStream_t stream = stream_new(api);
    float *device = device_new(api, 4096);
    MUST(add(api, device, device, 2048, stream));
    MUST(api->cudaStreamSynchronize(stream));
}

static void overrun_by_one(void)
{
    const struct cuda_api *api = cuda_host_open(NULL);
    cudaStream_t stream = stream_new(api);
    float *device = device_new(api, BYTES);
    MUST(add(api, device, device, COUNT + 1, stream));
    MUST(api->cudaFree(device));
}

static void misuse_by_default(void)
{
    const struct cuda_api *api = cuda_host_open(NULL);
    (void)api->cudaStreamSynchronize(NULL);
}

static void call_while_closed(void)
{
    const struct cuda_api *api = cuda_host_open(NULL);
    cuda_host_close();
    (void)api->cudaSetDevice(0);
}

TEST(harmful_touches_are_deadly)
{
    assert_dies(touch_device_memory, "byte 12 of allocated memory of device 0");
    assert_dies(touch_freed_memory, "of freed memory of device 0");
    assert_dies(touch_another_device, "of allocated memory of device 0");
    assert_dies(overrun_by_a_page, "byte 4096 of allocated memory");
    assert_dies(overrun_by_one, ""); /* the sanitizer's message, or ours when it is freed */
    assert_dies(misuse_by_default, "misuse: cudaStreamSynchronize: instead of a stream, NULL was given");
    assert_dies(call_while_closed, "while no host is open");
}

/* Misuse */

struct stage {
    const struct cuda_api *api;
    cudaStream_t stream;
    cudaStream_t destroyed;
    cudaEvent_t event;
    float *device;
    float *pinned;
    float *elsewhere; /* on device 1 */
    float *freed;
};

static void on_destroyed_stream(const struct stage *s)
{
    (void)add(s->api, s->device, s->device, 1, s->destroyed);
}

static void on_no_stream(const struct stage *s)
{
    (void)s->api->cudaMemsetAsync(s->device, 0, 4, NULL);
}

static void event_for_stream(const struct stage *s)
{
    (void)s->api->cudaStreamSynchronize((cudaStream_t)s->event);
}

static void wrong_device_is_current(const struct stage *s)
{
    MUST(s->api->cudaSetDevice(1));
    (void)add(s->api, s->device, s->device, 1, s->stream);
    MUST(s->api->cudaSetDevice(0));
}

static void memory_of_another_device(const struct stage *s)
{
    (void)s->api->cudaMemsetAsync(s->elsewhere, 0, 4, s->stream);
}

static void fill_freed(const struct stage *s)
{
    (void)s->api->cudaMemsetAsync(s->freed, 0, 4, s->stream);
}

static void free_twice(const struct stage *s)
{
    (void)s->api->cudaFree(s->freed);
}

static void free_pinned_as_device(const struct stage *s)
{
    (void)s->api->cudaFree(s->pinned);
}

static void fill_too_much(const struct stage *s)
{
    (void)s->api->cudaMemsetAsync(s->device + 1, 0, BYTES, s->stream);
}

static void copy_too_much_of_pinned(const struct stage *s)
{
    (void)s->api->cudaMemcpyAsync(s->device, s->pinned + 1, BYTES, cudaMemcpyHostToDevice, s->stream);
}

static void copy_the_wrong_way(const struct stage *s)
{
    (void)s->api->cudaMemcpyAsync(s->device, s->pinned, BYTES, cudaMemcpyDeviceToHost, s->stream);
}

static void launch_no_kernel(const struct stage *s)
{
    void *arguments[] = {NULL};
    dim3 one = {1, 1, 1};
    (void)s->api->cudaLaunchKernel(s, one, one, arguments, 0, s->stream);
}

static void launch_too_many_threads(const struct stage *s)
{
    struct add_args args = {s->device, s->device, 1};
    void *arguments[] = {&args};
    MUST(s->api->cudaLaunchKernel(add_handle(), (dim3){1, 1, 1}, (dim3){1025, 1, 1}, arguments, 0, s->stream));
    MUST(s->api->cudaStreamSynchronize(s->stream));
}

static void allocate_in_capture(const struct stage *s)
{
    void *out = NULL;
    cudaGraph_t graph;
    MUST(s->api->cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal));
    (void)s->api->cudaMalloc(&out, 8);
    assert_int_equal(s->api->cudaStreamEndCapture(s->stream, &graph), cudaErrorStreamCaptureInvalidated);
}

static void wait_in_capture(const struct stage *s)
{
    cudaGraph_t graph;
    MUST(s->api->cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeGlobal));
    (void)s->api->cudaStreamSynchronize(s->stream);
    assert_int_equal(s->api->cudaStreamEndCapture(s->stream, &graph), cudaErrorStreamCaptureInvalidated);
}

static void copy_ordinary_in_capture(const struct stage *s)
{
    cudaGraph_t graph;
    float here[COUNT];
    fill(here, 0.0f);
    MUST(s->api->cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeRelaxed));
    (void)s->api->cudaMemcpyAsync(s->device, here, BYTES, cudaMemcpyHostToDevice, s->stream);
    assert_int_equal(s->api->cudaStreamEndCapture(s->stream, &graph), cudaErrorStreamCaptureInvalidated);
}

static void event_in_capture(const struct stage *s)
{
    cudaGraph_t graph;
    MUST(s->api->cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeRelaxed));
    (void)s->api->cudaEventRecord(s->event, s->stream);
    assert_int_equal(s->api->cudaStreamEndCapture(s->stream, &graph), cudaErrorStreamCaptureInvalidated);
}

static void end_without_capture(const struct stage *s)
{
    cudaGraph_t graph;
    (void)s->api->cudaStreamEndCapture(s->stream, &graph);
}

static void time_of_unrecorded(const struct stage *s)
{
    float ms;
    (void)s->api->cudaEventElapsedTime(&ms, s->event, s->event);
}

static void blocking_stream(const struct stage *s)
{
    cudaStream_t stream;
    (void)s->api->cudaStreamCreateWithFlags(&stream, cudaStreamDefault);
}

static const struct {
    void (*act)(const struct stage *stage);
    const char *says;
} misuses[] = {
    {on_destroyed_stream, "cudaLaunchKernel: instead of a stream, one that was destroyed was given"},
    {on_no_stream, "cudaMemsetAsync: instead of a stream, NULL"},
    {event_for_stream, "instead of a stream, something else"},
    {wrong_device_is_current, "the stream is of device 0, but device 1 is current"},
    {memory_of_another_device, "memory of device 1, not 0"},
    {fill_freed, "cudaMemsetAsync: where to was freed"},
    {free_twice, "cudaFree: not the beginning of memory"},
    {free_pinned_as_device, "cudaFree: not the beginning of memory"},
    {fill_too_much, "400 bytes, but there are only 396 of the 400"},
    {copy_too_much_of_pinned, "400 bytes go beyond pinned memory of 400"},
    {copy_the_wrong_way, "the kind of copy"},
    {launch_no_kernel, "not a kernel"},
    {launch_too_many_threads, "a kernel failed"},
    {allocate_in_capture, "cudaMalloc while a stream is being captured"},
    {wait_in_capture, "cudaStreamSynchronize while a stream is being captured"},
    {copy_ordinary_in_capture, "cannot copy memory that is not pinned"},
    {event_in_capture, "others cannot wait for it"},
    {end_without_capture, "is not being captured"},
    {time_of_unrecorded, "never recorded"},
    {blocking_stream, "not cudaStreamNonBlocking"},
};

TEST(misuse_is_reported)
{
    for (size_t i = 0; i < sizeof misuses / sizeof misuses[0]; i++) {
        const struct cuda_api *api = open_noting(CUDA_HOST_LATE, 2);
        struct stage s = {api, stream_new(api), stream_new(api), event_new(api)};
        s.device = device_new(api, BYTES);
        s.pinned = pinned_new(api, BYTES);
        s.freed = device_new(api, BYTES);
        MUST(api->cudaFree(s.freed));
        MUST(api->cudaStreamDestroy(s.destroyed));
        MUST(api->cudaSetDevice(1));
        s.elsewhere = device_new(api, BYTES);
        MUST(api->cudaSetDevice(0));
        misuses[i].act(&s);
        assert_misuse(misuses[i].says);
        MUST(api->cudaFree(s.device));
        MUST(api->cudaFree(s.elsewhere));
        MUST(api->cudaFreeHost(s.pinned));
        MUST(api->cudaStreamDestroy(s.stream));
        MUST(api->cudaEventDestroy(s.event));
        cuda_host_close();
        assert_int_equal(misuse_count, 0);
    }
}

/* A global capture on one thread forbids other threads to allocate. */
static void *allocate_elsewhere(void *context)
{
    struct waiter *w = context;
    void *out = NULL;
    w->answer = w->api->cudaMalloc(&out, 8);
    if (w->answer == cudaSuccess) { w->answer = w->api->cudaFree(out); }
    return NULL;
}

TEST(a_capture_forbids_other_threads)
{
    static const enum cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeGlobal};
    for (int i = 0; i < 2; i++) {
        const struct cuda_api *api = open_noting(CUDA_HOST_LATE, 1);
        struct waiter w = {api, stream_new(api), cudaSuccess};
        pthread_t thread;
        cudaGraph_t graph = NULL;
        MUST(api->cudaStreamBeginCapture(w.stream, modes[i]));
        MUST(pthread_create(&thread, NULL, allocate_elsewhere, &w));
        pthread_join(thread, NULL);
        cudaError_t ended = api->cudaStreamEndCapture(w.stream, &graph);
        if (modes[i] == cudaStreamCaptureModeGlobal) {
            assert_int_equal(w.answer, cudaErrorStreamCaptureUnsupported);
            assert_int_equal(ended, cudaErrorStreamCaptureInvalidated);
            assert_misuse("cudaMalloc while a stream is being captured");
        } else {
            MUST(w.answer);
            MUST(ended);
            MUST(api->cudaGraphDestroy(graph));
        }
        MUST(api->cudaStreamDestroy(w.stream));
        cuda_host_close();
        assert_int_equal(misuse_count, 0);
    }
}

TEST(leaks_are_reported)
{
    const struct cuda_api *api = open_noting(CUDA_HOST_LATE, 1);
    (void)stream_new(api);
    cuda_host_close();
    assert_misuse("never destroyed: 1 x stream");
    api = open_noting(CUDA_HOST_LATE, 1);
    (void)event_new(api);
    (void)event_new(api);
    cuda_host_close();
    assert_misuse("never destroyed: 2 x event");
    api = open_noting(CUDA_HOST_LATE, 1);
    (void)device_new(api, 8);
    cuda_host_close();
    assert_misuse("never freed: device memory, 1 pieces");
    api = open_noting(CUDA_HOST_LATE, 1);
    (void)pinned_new(api, 8);
    cuda_host_close();
    assert_misuse("never freed: pinned memory, 1 pieces");
}
