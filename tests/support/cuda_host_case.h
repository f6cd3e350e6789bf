/* Small helpers for tests on the host table: calls that must succeed, reported misuse, deaths of a child process. */
#ifndef TESTS_CUDA_HOST_CASE_H
#define TESTS_CUDA_HOST_CASE_H

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_host.h"
#include "harness.h"

#define MUST(call) assert_int_equal((int)(call), 0)

/* The last misuse that was reported to note_misuse, and how many there were. */
static char misuse_text[512];
static unsigned misuse_count;

static inline void note_misuse(const char *what)
{
    snprintf(misuse_text, sizeof misuse_text, "%s", what);
    misuse_count++;
}

/* Asserts that exactly one misuse was reported, whose text contains `part`, and forgets it. */
static inline void assert_misuse(const char *part)
{
    if (misuse_count != 1 || strstr(misuse_text, part) == NULL) {
        fail_msg("misuse x %u: \"%s\", where \"%s\" was to be found", misuse_count, misuse_text, part);
    }
    misuse_count = 0;
    misuse_text[0] = '\0';
}

/* Runs `act` in a child process, which must die before it returns, with `part` on standard error. */
static inline void assert_dies(void (*act)(void), const char *part)
{
    int ends[2];
    MUST(pipe(ends));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        signal(SIGSEGV, SIG_DFL); /* not cmocka's, which would go on with the next case */
        act();
        _exit(0);
    }
    close(ends[1]);
    static char said[1 << 16];
    size_t length = 0;
    ssize_t got;
    while ((got = read(ends[0], said + length, sizeof said - 1 - length)) > 0) { length += (size_t)got; }
    said[length] = '\0';
    close(ends[0]);
    int status;
    waitpid(child, &status, 0);
    if (status == 0) { fail_msg("the child lived on"); }
    if (strstr(said, part) == NULL) { fail_msg("the child died without \"%s\", but with: %s", part, said); }
}

static inline void *device_new(const struct cuda_api *api, size_t bytes)
{
    void *out = NULL;
    MUST(api->cudaMalloc(&out, bytes));
    return out;
}

static inline void *pinned_new(const struct cuda_api *api, size_t bytes)
{
    void *out = NULL;
    MUST(api->cudaHostAlloc(&out, bytes, cudaHostAllocDefault));
    return out;
}

static inline cudaStream_t stream_new(const struct cuda_api *api)
{
    cudaStream_t out = NULL;
    MUST(api->cudaStreamCreateWithFlags(&out, cudaStreamNonBlocking));
    return out;
}

static inline cudaEvent_t event_new(const struct cuda_api *api)
{
    cudaEvent_t out = NULL;
    MUST(api->cudaEventCreateWithFlags(&out, cudaEventDefault));
    return out;
}

#endif
