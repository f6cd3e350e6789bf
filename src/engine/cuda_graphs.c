#include "engine/cuda_graphs.h"

#include <stdlib.h>

static void destroy(struct cuda_graphs *graphs, struct cuda_bucket *bucket)
{
    if (bucket->graph == NULL)
        return;
    (void)graphs->api->cudaGraphExecDestroy(bucket->graph);
    bucket->graph = NULL;
    graphs->graphs--;
}

void cuda_graphs_drop(struct cuda_graphs *graphs)
{
    for (size_t i = 0; i < graphs->count; i++)
        destroy(graphs, &graphs->buckets[i]);
}

void cuda_graphs_close(struct cuda_graphs *graphs)
{
    cuda_graphs_drop(graphs);
    free(graphs->buckets);
    *graphs = (struct cuda_graphs){0};
}

static enum status grow(struct cuda_graphs *graphs, struct err *err)
{
    size_t capacity = graphs->capacity == 0 ? 32 : 2 * graphs->capacity;
    struct cuda_bucket *buckets = realloc(graphs->buckets, capacity * sizeof *buckets);
    if (buckets == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for %zu sizes of passes", capacity);
    graphs->buckets = buckets;
    graphs->capacity = capacity;
    return STATUS_OK;
}

enum status cuda_graphs_find(struct cuda_graphs *graphs, uint32_t tokens, uint32_t rows, struct cuda_bucket **out,
                             struct err *err)
{
    for (size_t i = 0; i < graphs->count; i++) {
        *out = &graphs->buckets[i];
        if ((*out)->tokens == tokens && (*out)->rows == rows)
            return STATUS_OK;
    }
    if (graphs->count == graphs->capacity)
        TRY(grow(graphs, err));
    *out = &graphs->buckets[graphs->count++];
    **out = (struct cuda_bucket){.tokens = tokens, .rows = rows};
    return STATUS_OK;
}

static struct cuda_bucket *oldest(const struct cuda_graphs *graphs)
{
    struct cuda_bucket *found = NULL;
    for (size_t i = 0; i < graphs->count; i++) {
        struct cuda_bucket *bucket = &graphs->buckets[i];
        if (bucket->graph != NULL && (found == NULL || bucket->last_pass < found->last_pass))
            found = bucket;
    }
    return found;
}

static enum status make_room(struct cuda_graphs *graphs, cudaStream_t stream, uint64_t running, struct err *err)
{
    const struct cuda_api *api = graphs->api;
    if (graphs->graphs < graphs->most)
        return STATUS_OK;
    struct cuda_bucket *goes = oldest(graphs);
    if (goes->last_pass >= running)
        TRY(cuda_check(api, api->cudaStreamSynchronize(stream), "waiting for a graph", err));
    destroy(graphs, goes);
    return STATUS_OK;
}

static enum status instantiate(struct cuda_graphs *graphs, struct cuda_bucket *bucket, cudaGraph_t captured,
                               cudaStream_t stream, struct err *err)
{
    const struct cuda_api *api = graphs->api;
    static const char what[] = "making a graph";
    enum status status = cuda_check(api, api->cudaGraphInstantiate(&bucket->graph, captured, 0), what, err);
    if (status == STATUS_NO_MEMORY && graphs->graphs > 0) {
        TRY(cuda_check(api, api->cudaStreamSynchronize(stream), "waiting for graphs", err));
        bucket->graph = NULL;
        cuda_graphs_drop(graphs);
        status = cuda_check(api, api->cudaGraphInstantiate(&bucket->graph, captured, 0), what, err);
    }
    if (status == STATUS_OK)
        graphs->graphs++;
    else
        bucket->graph = NULL;
    return status;
}

enum status cuda_graphs_keep(struct cuda_graphs *graphs, struct cuda_bucket *bucket, cudaGraph_t captured,
                             cudaStream_t stream, uint64_t running, struct err *err)
{
    enum status status = make_room(graphs, stream, running, err);
    if (status == STATUS_OK)
        status = instantiate(graphs, bucket, captured, stream, err);
    (void)graphs->api->cudaGraphDestroy(captured);
    return status;
}
