#include "peer_team.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "engine/cpu/gemm_onednn.h"
#include "engine/cpu/parallel_for.h"

enum { THREADS_MAX = 64 };

struct helper {
    pthread_t thread;
    struct peer_team *team;
    struct encoder *encoder;
};

struct peer_team {
    struct engine *engine;
    unsigned threads;
    struct team *single;                /* for windows of one batch, as in the daemon */
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
    struct peer_team *team = helper->team;
    struct err err = {0};
    for (uint32_t i = atomic_fetch_add(&team->next, 1); i < team->count; i = atomic_fetch_add(&team->next, 1))
        peer_must(encoder_run(helper->encoder, &team->batches[i], &err), &err);
}

static void open_encoder(struct helper *helper)
{
    struct err err = {0};
    matmul_single_thread();
    peer_must(encoder_open(helper->team->engine, &helper->encoder, &err), &err);
    peer_must(encoder_join(helper->encoder, helper->team->single, &err), &err);
}

static void *help(void *argument)
{
    struct helper *helper = argument;
    struct peer_team *team = helper->team;
    open_encoder(helper);
    pthread_mutex_lock(&team->lock);
    for (uint64_t seen = 0;;) {
        while (team->window == seen && !team->closing)
            pthread_cond_wait(&team->begun, &team->lock);
        if (team->closing)
            break;
        seen = team->window;
        pthread_mutex_unlock(&team->lock);
        take_batches(helper);
        pthread_mutex_lock(&team->lock);
        if (--team->busy == 0)
            pthread_cond_signal(&team->ended);
    }
    pthread_mutex_unlock(&team->lock);
    encoder_close(helper->encoder);
    return NULL;
}

struct peer_team *peer_team_open(struct engine *engine, unsigned threads)
{
    struct peer_team *team = peer_need(1, sizeof *team);
    if (threads == 0 || threads > THREADS_MAX)
        peer_die("%u threads", threads);
    team->engine = engine;
    team->threads = threads;
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->begun, NULL);
    pthread_cond_init(&team->ended, NULL);
    for (unsigned i = 0; i < threads; i++)
        team->helpers[i].team = team;
    struct err err = {0};
    peer_must(team_open(threads, &team->single, &err), &err);
    open_encoder(&team->helpers[0]);
    for (unsigned i = 1; i < threads; i++)
        if (pthread_create(&team->helpers[i].thread, NULL, help, &team->helpers[i]) != 0)
            peer_die("no thread");
    return team;
}

void peer_team_close(struct peer_team *team)
{
    pthread_mutex_lock(&team->lock);
    team->closing = true;
    pthread_cond_broadcast(&team->begun);
    pthread_mutex_unlock(&team->lock);
    for (unsigned i = 1; i < team->threads; i++)
        pthread_join(team->helpers[i].thread, NULL);
    encoder_close(team->helpers[0].encoder);
    team_close(team->single);
    pthread_cond_destroy(&team->begun);
    pthread_cond_destroy(&team->ended);
    pthread_mutex_destroy(&team->lock);
    free(team);
}

void peer_team_embed_window(struct peer_team *team, const struct peer_load *load, uint32_t window)
{
    team->batches = peer_load_batches(load, window, &team->count);
    atomic_store(&team->next, 0);
    if (team->count > 1) {
        pthread_mutex_lock(&team->lock);
        team->window++;
        team->busy = team->threads - 1;
        pthread_cond_broadcast(&team->begun);
        pthread_mutex_unlock(&team->lock);
    }
    take_batches(&team->helpers[0]);
    pthread_mutex_lock(&team->lock);
    while (team->busy > 0)
        pthread_cond_wait(&team->ended, &team->lock);
    pthread_mutex_unlock(&team->lock);
}

void peer_team_embed(struct peer_team *team, const struct peer_load *load)
{
    for (uint32_t window = 0; window < peer_load_windows(load); window++)
        peer_team_embed_window(team, load, window);
}
