/* The memory of one compute thread: the buffers of its passes, and the private memory of each helper. */
#ifndef ENGINE_CPU_WORKSPACE_H
#define ENGINE_CPU_WORKSPACE_H

#include "engine/backend.h"
#include "engine/cpu/cpu_weights.h"
#include "engine/cpu/parallel_for.h"

/* A pass reads all weights once from memory or the third-level cache, so it should have many rows; at this size the
 * activations of one product still fit into a second-level cache. */
enum { PASS_TOKENS = 512 };

/* Helpers take part in passes of up to this many tokens, and of one text alone. */
enum { HELPED_TOKENS = 256 };

struct cpu_decoder;

/* The private memory of each thread. */
struct cpu_thread {
    float *scratch; /* attention's */
};

/* Buffers of activations, a row for each token. Those that a precision does not need are NULL. */
struct backend_workspace {
    const struct cpu_weights *weights;
    const struct pass *pass;
    void *memory; /* holds all buffers below */
    size_t bytes;
    float *hidden;               /* [rows, hidden] */
    float *sum;                  /* [rows, hidden] before the normalisation; `hidden`, unless pre_norm */
    uint16_t *hidden16;          /* [rows, hidden] */
    float *wide;                 /* [rows, queries, keys, values], or [rows, intermediate] before the output */
    uint16_t *wide16;            /* the same */
    float *product;              /* [rows, hidden] of a product with a residual */
    struct activations context;  /* [rows, model_query_width] */
    struct scaled_rows integers; /* [rows, longest input]: the next product's input, if that is int16 or split */
    struct scaled_rows int8;     /* the same, if it is in int8 */

    uint32_t tokens;             /* the most in a pass; 0: PASS_TOKENS, or one longer row */
    struct cpu_decoder *decoder; /* of a decoder's workspace; decoder_cpu.c */

    struct parallel_for *parallel; /* NULL: no helpers */
    bool helped;                   /* in the current or last pass */
    unsigned threads;
    void *helpers_memory; /* holds the helpers' buffers */
    size_t helpers_bytes;
    struct cpu_thread thread[PARALLEL_THREADS_MAX];
};

/* workspace_open for passes of up to `tokens` tokens. */
MUST_CHECK enum status cpu_workspace_open_for(struct backend *backend, uint32_t tokens, struct backend_workspace **out,
                                              struct err *err);

/* The ops workspace_open, workspace_join and workspace_close of struct backend_ops. */
MUST_CHECK enum status cpu_workspace_open(struct backend *backend, struct backend_workspace **out, struct err *err);
MUST_CHECK enum status cpu_workspace_join(struct backend_workspace *workspace, struct parallel_for *parallel,
                                          struct err *err);
void cpu_workspace_close(struct backend_workspace *workspace);

/* Lays out the inputs of products in integers of that kind, as memory_part does. */
struct scaled_rows cpu_lay_out_integers(enum gemm_kind kind, size_t rows, uint32_t inputs, char *block, size_t *used);

/* Frees a decoder's part of a workspace; NULL is allowed. For cpu_workspace_close. */
void cpu_decoder_close(struct cpu_decoder *decoder);
extern const struct decoder_ops decoder_cpu;

/* A row of `hidden`, and of `hidden16` if there is one. */
static inline struct activations cpu_hidden_row(const struct backend_workspace *workspace, size_t row)
{
    size_t at = row * workspace->weights->backend.model->hidden;
    return (struct activations){workspace->hidden + at, workspace->hidden16 ? workspace->hidden16 + at : NULL};
}

/* One step of a pass: what to do, cut into chunks. */
struct cpu_step {
    struct backend_workspace *workspace;
    uint32_t layer;
    unsigned site; /* an enum linear_site or norm_site */
    unsigned chunks;
};

/* The number of chunks to cut a step of `parts` equal parts into, with at least `least` parts in each: 1 without
 * helpers, else a few for each thread, so that all end at about the same time. */
unsigned cpu_chunks(const struct backend_workspace *workspace, uint32_t parts, uint32_t least);

/* Does a step, alone or with helpers; `step` is the context of `chunk`. */
void cpu_do(const struct cpu_step *step, void (*chunk)(void *context, unsigned thread, unsigned chunk));

#endif
