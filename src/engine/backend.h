/* The interface of a device. A backend is one file and a row of the table in backend.c.
 *
 * The ops are those of the forward pass (encoder.c). A backend may fuse a product with the ops that follow it, and may
 * merely enqueue work until wait. A workspace is one thread's memory on the device; the ops of a pass are called on it
 * in the order of the forward pass, embed to submit. An op that fails ends its pass: the pass is not submitted or
 * waited for, and the workspace is ready for the next one. */
#ifndef ENGINE_BACKEND_H
#define ENGINE_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/engine.h"
#include "model/model.h"

struct backend_ops;
struct decoder_options;

/* An engine's counters. Thread: any. */
struct backend_counters {
    atomic_uint_fast64_t passes, graphs_captured, graph_launches, graph_fallbacks, halvings;
};

/* The first member of every backend's own struct. Read-only once open. */
struct backend {
    const struct backend_ops *ops;     /* set by the caller of open, after it returns */
    struct backend_counters *counters; /* the same */
    const struct model *model;
    enum precision precision; /* never PRECISION_AUTO */
    size_t weight_bytes;      /* on the device */
    const char *products;     /* how those that are not in int8 are computed; NULL: the device says so */
    char device[200];         /* in words; devices with the same words have similar speed */
    unsigned slots; /* passes of a workspace that may be submitted and not waited for; 1 to BACKEND_SLOTS_MAX */
};

enum { BACKEND_SLOTS_MAX = 4 };

struct backend_workspace;
struct parallel_for;

/* The limits of a pass: whole rows with up to `tokens` elements in all, or one longer row alone; and at most `rows`
 * rows. */
struct pass_limits {
    uint32_t tokens, rows;
};

/* What each layer of a batch begins with, so that another run of the batch may begin at one of them. */
struct layer_inputs {
    float *rows;     /* [layer_count, extent, LAYER_INPUT * hidden] */
    uint32_t extent; /* the batch's */
    uint32_t from;   /* the layer to begin at; 0: all run, and `rows` is written */
};

enum { LAYER_INPUT = 3 };

/* One pass: some whole rows of a batch, laid out as in the batch. Row r is ids[start[r] - origin] onwards. */
struct pass {
    uint32_t rows;
    uint32_t extent; /* elements from the first row's start to the end of the last row's place, gaps included */
    uint32_t origin;
    const int32_t *ids;     /* [extent] */
    const uint32_t *start;  /* [rows] */
    const uint32_t *length; /* [rows] */
    const uint32_t *second; /* [rows], or NULL: as in struct engine_batch */
    uint32_t second_row; /* what the row index of such a token in model_read_positions adds to that of its position */
    uint32_t position_offset;      /* the model's, for next_position_row */
    const uint32_t *first;         /* [rows], of a decoder's step: the position of a row's first token */
    const uint32_t *const *blocks; /* [rows], of a decoder's step, as in struct decoder_row; NULL: an encoder's pass */
    struct layer_inputs *inputs;   /* NULL: the pass has all layers, and keeps none of their inputs */
    bool normalize;                /* the device scales vectors to length 1; only where ops->finite */
    float *output;                 /* [rows, hidden], pooled; written by the time wait returns */
};

enum linear_site {
    LINEAR_QKV,              /* hidden -> queries, keys, values, with bias */
    LINEAR_ATTENTION_OUTPUT, /* context -> hidden, with bias, plus the residual */
    LINEAR_INTERMEDIATE,     /* hidden -> intermediate, with bias and activation; in a gated model hidden -> twice
                                intermediate, which the gate reduces to intermediate */
    LINEAR_OUTPUT,           /* intermediate -> hidden, with bias, plus the residual */
};

enum norm_site { NORM_ATTENTION, NORM_OUTPUT };

/* The number of outputs and inputs of the product at that site, the same in every layer. */
void backend_linear_shape(const struct model *model, enum linear_site site, uint32_t *outputs, uint32_t *inputs);

enum { BACKEND_LAYER_TEXT = 128 };

/* Writes all numbers of a layer that its time depends on; returns `text`. Two models with the same text and number of
 * layers may share their measurements. */
const char *backend_print_layer(const struct model *model, char text[BACKEND_LAYER_TEXT]);

/* A decoder needs these in addition: its step is a pass with blocks, in which `attention` below replaces that of
 * encoders, and logits replaces pool. */
struct decoder_ops {
    uint32_t step_tokens; /* larger steps gain nothing */
    /* As decoder_block_bytes. */
    size_t (*block_bytes)(const struct backend *backend);
    /* As workspace_open, with a pool of blocks, for steps of up to options->step_tokens and step_rows. */
    enum status (*open)(struct backend *backend, const struct decoder_options *options, struct backend_workspace **out,
                        struct err *err);
    enum status (*attention)(struct backend_workspace *workspace, uint32_t layer, struct err *err);
    /* Computes the logits of the last token of these rows of the pass. Shapes: rows [count]; out [count, vocabulary],
     * the workspace's memory. */
    enum status (*logits)(struct backend_workspace *workspace, const uint32_t *rows, uint32_t count, float **out,
                          struct err *err);
    void (*copy_block)(struct backend_workspace *workspace, uint32_t from, uint32_t to);
};

struct backend_ops {
    const char *name;
    struct batch_size batch; /* returned by engine_batch_size */

    /* The number of such devices on this machine. Errors: STATUS_UNSUPPORTED, saying why there are none. */
    enum status (*devices)(unsigned *count, struct err *err);
    /* The precision that this machine would run this model in (NULL: most models) when `asked` is requested, or
     * PRECISION_AUTO if it cannot. */
    enum precision (*choose)(const struct model *model, enum precision asked);
    bool measures; /* if that is bf16 for PRECISION_AUTO, auto_precision decides between it and f32 */
    /* Succeeds if the backend computes such models; NULL: all. Errors: STATUS_UNSUPPORTED. */
    enum status (*takes)(const struct model *model, struct err *err);

    /* Puts a model's weights on the device. `options` live as long as the call; options->precision is the result of
     * choose. Owns: the caller ends it with close; `model` and options->cache_path outlive it. */
    enum status (*open)(const struct model *model, const struct engine_options *options, struct backend **out,
                        struct err *err);
    void (*close)(struct backend *backend);
    /* Sets which products of a backend are in int8 that was opened in that precision without a choice of products
     * (options->int8): then all are to begin with, and their weights are kept in both ways. NULL: there is no int8, or
     * nothing to choose. Thread: while no pass is under way. */
    void (*set_int8)(struct backend *backend, const struct engine_int8 *choice);
    /* Ends that: the backend is then as if it had been opened with the choice. Thread: while it has no workspace. */
    void (*settle_int8)(struct backend *backend, const struct engine_int8 *choice);

    /* Copies what a layer begins with out of the workspace, or with `back` into it, where it replaces what embed and
     * the layers before wrote. Shapes: rows [extent of the pass, LAYER_INPUT * hidden]. NULL without set_int8. */
    void (*copy_input)(struct backend_workspace *workspace, uint32_t layer, float *rows, bool back);

    /* Thread: workspaces of one backend may be opened, run and closed side by side. */
    enum status (*workspace_open)(struct backend *backend, struct backend_workspace **out, struct err *err);
    /* As encoder_join; NULL where nothing can help. */
    enum status (*workspace_join)(struct backend_workspace *workspace, struct parallel_for *parallel, struct err *err);
    /* True if helpers could take part in the last pass begun; NULL where there are none. */
    bool (*helped)(const struct backend_workspace *workspace);
    void (*workspace_close)(struct backend_workspace *workspace);
    /* Asked before every pass: a workspace that had to give memory back takes less from then on. */
    struct pass_limits (*limits)(const struct backend_workspace *workspace);

    enum status (*embed)(struct backend_workspace *workspace, const struct pass *pass, struct err *err);
    enum status (*linear)(struct backend_workspace *workspace, uint32_t layer, enum linear_site site, struct err *err);
    enum status (*attention)(struct backend_workspace *workspace, uint32_t layer, struct err *err);
    enum status (*norm)(struct backend_workspace *workspace, uint32_t layer, enum norm_site site, struct err *err);
    enum status (*pool)(struct backend_workspace *workspace, struct err *err);
    /* Ends the pass that embed began; the pass must not change until wait has delivered it. */
    enum status (*submit)(struct backend_workspace *workspace, struct err *err);
    /* Waits for the oldest pass that was submitted and not waited for, and writes its output. An error is that pass's:
     * it counts as waited for. */
    enum status (*wait)(struct backend_workspace *workspace, struct err *err);
    /* True if all numbers of the pass that was waited for last are finite: the device has looked. NULL: the encoder
     * looks at each row and normalises it. */
    bool (*finite)(const struct backend_workspace *workspace);

    const struct decoder_ops *decoder; /* NULL: it does not generate text */
};

extern const struct backend_ops backend_cuda; /* in programs that are built with it */
extern const struct backend_ops backend_cpu;
extern const struct backend_ops backend_null;

/* The row of the table with that name; "auto" and NULL mean the first that has a device here, computes in the precision
 * that was asked for and takes the model (NULL: any), and `passed_over`, if it is not NULL, then says why the rows
 * before it were not taken (status STATUS_OK: there were none). Errors: STATUS_UNSUPPORTED; the message lists the
 * backends, or says why the named one, or each, does not work. */
MUST_CHECK enum status backend_find(const char *name, enum precision asked, const struct model *model,
                                    const struct backend_ops **out, struct err *passed_over, struct err *err);

/* The precision in which a backend runs this model (NULL: most models) on this machine when `asked` is requested.
 * Errors: STATUS_UNSUPPORTED (none). */
MUST_CHECK enum status backend_choose(const struct backend_ops *ops, const struct model *model, enum precision asked,
                                      enum precision *out, struct err *err);

/* engine_open on a given backend, also one that is in no table: tests inject faults this way. `options` may be NULL;
 * options->backend is ignored. Owns and Errors: as engine_open. */
MUST_CHECK enum status engine_open_with(const struct backend_ops *ops, const struct model *model,
                                        const struct engine_options *options, struct engine **out, struct err *err);

#endif
