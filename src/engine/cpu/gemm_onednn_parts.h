/* What the files of cpu_matmul share: the structs behind the handles. */
#ifndef ENGINE_CPU_MATMUL_PARTS_H
#define ENGINE_CPU_MATMUL_PARTS_H

#include <dnnl.h>

#include "engine/cpu/kernels.h"
#include "engine/cpu/gemm_onednn.h"

enum {
    BUCKETS_MAX = 16,
    BLOCK_OUTPUTS = 192, /* the most outputs of a block */
    PANEL_INPUTS = 768,  /* the most inputs that are summed at once; block by panel is 0.6 MB of f32 */
};

/* Rows up to which a product of our own is faster than oneDNN's, where the weights come from memory. */
enum { FEW_ROWS = 32 };

/* Where a packed part has its strips, in floats: from an input to the next, and from a strip to the next. */
struct few_layout {
    size_t input_stride, strip_stride;
};

/* The steps that make a product: the first panel writes, the others add. */
enum step_kind { STEP_FIRST, STEP_ADD, STEP_KINDS };

struct matmul_device {
    dnnl_engine_t engine;
};

struct step {
    dnnl_memory_desc_t from[BUCKETS_MAX], to[BUCKETS_MAX];
    dnnl_primitive_t primitive[BUCKETS_MAX];
};

struct matmul {
    struct matmul_device *device;
    enum precision precision;
    bool whole;
    uint32_t outputs, inputs;
    uint32_t bucket_rows; /* bucket b runs (b + 1) * bucket_rows rows */
    uint32_t blocks, block_outputs;
    uint32_t panels, panel_inputs;
    dnnl_memory_desc_t packed; /* of one block and panel */
    struct step steps[STEP_KINDS];
    bool usable[BUCKETS_MAX];
    size_t scratch_bytes;
    struct few_layout few_layout;
    uint32_t few_inputs; /* that it sums at once, before they are added to the others: as oneDNN does */
    void (*few_rows)(const struct few_job *job); /* computes up to FEW_ROWS rows instead; NULL: oneDNN does */
};

struct matmul_weights {
    uint32_t count;         /* blocks * panels */
    const char *packed;     /* where the first of them stands; all have the same size */
    dnnl_memory_t memory[]; /* [blocks, panels] */
};

/* A thread's memory handles for one shape; their pointers are set before every run. */
struct runner_shape {
    const struct matmul *matmul;
    dnnl_memory_t from[STEP_KINDS][BUCKETS_MAX], to[STEP_KINDS][BUCKETS_MAX];
};

struct matmul_runner {
    dnnl_stream_t stream;
    void *scratch;
    dnnl_memory_t scratch_memory;
    size_t count;
    struct runner_shape *shapes;
};

/* oneDNN's status in our words. Errors: STATUS_NO_MEMORY, STATUS_UNSUPPORTED, STATUS_INTERNAL with its number. */
MUST_CHECK enum status matmul_check(dnnl_status_t status, const char *what, struct err *err);

/* The product of few rows, if it is for this layout; whether its bits are right, matmul_check_bits looks. */
void matmul_few_rows_pick(struct matmul *matmul);
/* Runs all panels of one strip of FEW_STRIP outputs for at most FEW_ROWS rows; see matmul_run. */
void matmul_few_rows_run(const struct matmul *matmul, const struct matmul_weights *weights, uint32_t strip,
                         const struct matmul_way *way, uint32_t rows, const float *from, float *to);

/* The bytes of a packed part: of one block and panel. */
size_t matmul_part_bytes(const struct matmul *matmul);

/* The bytes of an input element. */
size_t matmul_element_bytes(const struct matmul *matmul);

/* Runs all panels of one block for the rows of one bucket. Errors: as matmul_check. */
MUST_CHECK enum status matmul_run_bucket(struct matmul_runner *runner, struct runner_shape *shape,
                                         const struct matmul_weights *weights, uint32_t block, uint32_t bucket,
                                         const char *from, float *to, struct err *err);

/* Finds the buckets in which a row has the same bits as in the largest, and leaves only those usable.
 * Errors: STATUS_UNSUPPORTED when a row's bits depend on its place even there. */
MUST_CHECK enum status matmul_check_bits(struct matmul *matmul, struct err *err);

#endif
