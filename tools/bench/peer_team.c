#include "peer_team.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "engine/cpu/gemm_onednn.h"
#include "engine/cpu/parallel_for.h"

enum { THREADS_MAX = 64 };

struct helper {
    pthread_t thread;
    struct peer_team *parallel;
    struct encoder *encoder;
};

struct peer_team {
    struct engine *engine;
    unsigned threads;
    struct parallel_for *single;        /* for windows of one batch, as in the daemon */
    struct helper helpers[THREADS_MAX]; /* the first is the caller's own */

    pthread_mutex_t lock;
    pthread_cond_t begun, ended;
    uint64_t window; /* counts them, so that a helper sees a new one */
    unsigned busy;
    bool closing;

    const struct engine_batch *batches;
    uint32_t count;
    atomic_uint next;
};

static void take_batches(struct helper *helper)
{
    struct peer_team *parallel = helper->parallel;
    struct err err = {0};
    for (uint32_t i = atomic_fetch_add(&parallel->next, 1); i < parallel->count;
         i = atomic_fetch_add(&parallel->next, 1))
        peer_must(encoder_run(helper->encoder, &parallel->batches[i], &err), &err);
}

static void open_encoder(struct helper *helper)
{
    struct err err = {0};
    onednn_single_thread();
    peer_must(encoder_open(helper->parallel->engine, &helper->encoder, &err), &err);
    peer_must(encoder_join(helper->encoder, helper->parallel->single, &err), &err);
}

static void *help(void *argument)
{
    struct helper *helper = argument;
    struct peer_team *parallel = helper->parallel;
    open_encoder(helper);
    pthread_mutex_lock(&parallel->lock);
    for (uint64_t seen = 0;;) {
        while (parallel->window == seen && !parallel->closing)
            pthread_cond_wait(&parallel->begun, &parallel->lock);
        if (parallel->closing)
            break;
        seen = parallel->window;
        pthread_mutex_unlock(&parallel->lock);
        take_batches(helper);
        pthread_mutex_lock(&parallel->lock);
        if (--parallel->busy == 0)
            pthread_cond_signal(&parallel->ended);
    }
    pthread_mutex_unlock(&parallel->lock);
    encoder_close(helper->encoder);
    return NULL;
}

struct peer_team *peer_team_open(struct engine *engine, unsigned threads)
{
    struct peer_team *parallel = peer_need(1, sizeof *parallel);
    if (threads == 0 || threads > THREADS_MAX)
        peer_die("%u threads", threads);
    parallel->engine = engine;
    parallel->threads = threads;
    pthread_mutex_init(&parallel->lock, NULL);
    pthread_cond_init(&parallel->begun, NULL);
    pthread_cond_init(&parallel->ended, NULL);
    for (unsigned i = 0; i < threads; i++)
        parallel->helpers[i].parallel = parallel;
    struct err err = {0};
    peer_must(parallel_for_open(threads, &parallel->single, &err), &err);
    open_encoder(&parallel->helpers[0]);
    for (unsigned i = 1; i < threads; i++)
        if (pthread_create(&parallel->helpers[i].thread, NULL, help, &parallel->helpers[i]) != 0)
            peer_die("no thread");
    return parallel;
}

void peer_team_close(struct peer_team *parallel)
{
    pthread_mutex_lock(&parallel->lock);
    parallel->closing = true;
    pthread_cond_broadcast(&parallel->begun);
    pthread_mutex_unlock(&parallel->lock);
    for (unsigned i = 1; i < parallel->threads; i++)
        pthread_join(parallel->helpers[i].thread, NULL);
    encoder_close(parallel->helpers[0].encoder);
    parallel_for_close(parallel->single);
    pthread_cond_destroy(&parallel->begun);
    pthread_cond_destroy(&parallel->ended);
    pthread_mutex_destroy(&parallel->lock);
    free(parallel);
}

void peer_team_embed_window(struct peer_team *parallel, const struct peer_load *load, uint32_t window)
{
    parallel->batches = peer_load_batches(load, window, &parallel->count);
    atomic_store(&parallel->next, 0);
    if (parallel->count > 1) {
        pthread_mutex_lock(&parallel->lock);
        parallel->window++;
        parallel->busy = parallel->threads - 1;
        pthread_cond_broadcast(&parallel->begun);
        pthread_mutex_unlock(&parallel->lock);
    }
    take_batches(&parallel->helpers[0]);
    pthread_mutex_lock(&parallel->lock);
    while (parallel->busy > 0)
        pthread_cond_wait(&parallel->ended, &parallel->lock);
    pthread_mutex_unlock(&parallel->lock);
}

void peer_team_embed(struct peer_team *parallel, const struct peer_load *load)
{
    for (uint32_t window = 0; window < peer_load_windows(load); window++)
        peer_team_embed_window(parallel, load, window);
}
