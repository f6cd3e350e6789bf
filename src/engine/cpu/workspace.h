/* A workspace of the CPU backend: the buffers that one compute thread's passes go through, and what each thread that
 * helps with one needs beside them. */
#ifndef ENGINE_CPU_STREAM_H
#define ENGINE_CPU_STREAM_H

#include "engine/backend.h"
#include "engine/cpu/int8_layers.h"
#include "engine/cpu/parallel_for.h"
#include "engine/cpu/weights.h"

/* A pass reads all weights once from the third-level cache or memory, so it should have many rows; the activations of
 * these still fit a second-level cache one product at a time. */
enum { PASS_TOKENS = 512 };

/* The tokens of the largest pass that others help with: one long text. */
enum { HELPED_TOKENS = 256 };

/* What a thread has to itself. */
struct cpu_thread {
    struct onednn_runner *runner; /* NULL where nothing is oneDNN's */
    float *scratch;               /* attention's */
    float *block;                 /* one block of a product of oneDNN's; the first thread's is `product` */
    struct err err;               /* what went wrong in its part of a step */
};

/* Buffers of activations; a row is a token. What a precision does not need is NULL. */
struct backend_workspace {
    const struct cpu_weights *weights;
    const struct pass *pass;
    void *memory;                    /* behind all that follows */
    float *hidden;                   /* [rows, hidden] */
    uint16_t *hidden16;              /* [rows, hidden] */
    float *wide;                     /* [rows, 3 hidden] before attention, [rows, intermediate] before the output */
    uint16_t *wide16;                /* the same */
    float *product;                  /* [rows, hidden] of a product with a residual */
    struct activations context;      /* [rows, hidden] */
    struct scaled_rows hidden_split; /* [rows, hidden] */
    struct scaled_rows inner_split;  /* [rows, hidden] of the context, then [rows, intermediate] */
    struct int8_space int8;          /* in int8 */

    struct parallel_for *parallel; /* NULL: nobody ever helps */
    bool helped;                   /* with the pass that is on, or was last */
    unsigned threads;
    void *helpers_memory; /* behind what helpers have */
    struct cpu_thread thread[PARALLEL_THREADS_MAX];
};

/* The ops workspace_open, workspace_join and workspace_close of struct backend_ops. */
MUST_CHECK enum status cpu_workspace_open(struct backend *backend, struct backend_workspace **out, struct err *err);
MUST_CHECK enum status cpu_workspace_join(struct backend_workspace *workspace, struct parallel_for *parallel,
                                          struct err *err);
void cpu_workspace_close(struct backend_workspace *workspace);

/* A row of `hidden`, and of `hidden16` where that is. */
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

/* How many chunks a step of `parts` equal parts is cut into, where a chunk should have `least` of them: 1 when nobody
 * helps, else a few for each thread, so that they end at about the same time. */
unsigned cpu_chunks(const struct backend_workspace *workspace, uint32_t parts, uint32_t least);

/* Does a step, alone or with helpers; `chunk` gets it as context. Errors: what the threads met. */
MUST_CHECK enum status cpu_do(const struct cpu_step *step,
                              void (*chunk)(void *context, unsigned thread, unsigned chunk), struct err *err);

#endif
