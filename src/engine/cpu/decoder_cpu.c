/* The CPU backend's part of a decoder: the pool of keys and values, attention to it, and lm_head.
 *
 * A block of the pool is [layers][heads of keys], and for each of these keys, transposed, then values, as struct
 * block_attention has them: a head's block is read from end to end. Keys are kept turned, so a block may be shared by
 * all sequences that have the same tokens before it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/system.h"
#include "engine/cpu/isa.h"
#include "engine/cpu/workspace.h"
#include "engine/decoder.h"

_Static_assert((int)KEY_BLOCK == (int)DECODER_BLOCK, "one size of blocks");

/* The least size of a chunk: tokens whose keys are written, outputs of lm_head. */
enum { LEAST_TOKENS = 8, LEAST_OUTPUTS = 256 };

struct cpu_decoder {
    void *memory; /* holds all below */
    size_t bytes;
    char *pool;                     /* [blocks], of block_bytes each */
    float *query;                   /* [step_tokens, queries], turned and scaled */
    float *row;                     /* [threads, keys of a token] */
    float *scratch;                 /* [threads, scratch_floats] */
    float *last;                    /* [step_rows, hidden]: the tokens whose logits are asked for */
    uint16_t *last16;               /* the same in bf16, if lm_head may read it; */
    struct scaled_rows int16, int8; /* and in integers */
    float *logits;                  /* [step_rows, vocabulary] */
    uint32_t asking;
};

/* Keys and values are in bf16, except in f32. */
static bool pool_is_half(const struct backend *backend)
{
    return backend->precision != PRECISION_F32;
}

/* The numbers that a head of keys takes in a block. */
static size_t head_numbers(const struct model *model)
{
    uint32_t head_dim = model_head_dim(model);
    return KEY_BLOCK * ((size_t)head_dim + values_width(head_dim));
}

static size_t block_numbers(const struct model *model)
{
    return (size_t)model->layer_count * model_key_heads(model) * head_numbers(model);
}

static size_t block_bytes(const struct backend *backend)
{
    return block_numbers(backend->model) * (pool_is_half(backend) ? sizeof(uint16_t) : sizeof(float));
}

/* The offset of a head of keys within a block. */
static size_t head_at(const struct model *model, uint32_t layer, uint32_t head)
{
    return ((size_t)layer * model_key_heads(model) + head) * head_numbers(model);
}

static size_t scratch_floats(const struct model *model)
{
    return attend_scratch(model->max_tokens, model_head_dim(model));
}

/* Lays the buffers out in `block` (NULL: nowhere, to learn the size) and returns their size. */
static size_t lay_out(struct cpu_decoder *decoder, const struct cpu_weights *weights,
                      const struct decoder_options *options, char *block)
{
    const struct model *model = weights->backend.model;
    size_t used = 0, rows = options->step_rows + (size_t)GEMM_ROWS_BEHIND, query = model_query_width(model);
    decoder->pool = memory_part(block, &used, options->blocks * block_bytes(&weights->backend));
    decoder->query = memory_part(block, &used, options->step_tokens * query * sizeof(float));
    decoder->row = memory_part(block, &used, PARALLEL_THREADS_MAX * (size_t)model_key_width(model) * sizeof(float));
    decoder->scratch = memory_part(block, &used, PARALLEL_THREADS_MAX * scratch_floats(model) * sizeof(float));
    decoder->logits = memory_part(block, &used, rows * model->vocabulary * sizeof(float));
    decoder->last = memory_part(block, &used, rows * model->hidden * sizeof(float));
    if (cpu_weights_are_half(weights)) {
        decoder->last16 = memory_part(block, &used, rows * model->hidden * sizeof(uint16_t));
    }
    if (precision_is_int8(weights->backend.precision)) {
        decoder->int16 = cpu_lay_out_integers(GEMM_INT16, rows, model->hidden, block, &used);
        decoder->int8 = cpu_lay_out_integers(GEMM_INT8, rows, model->hidden, block, &used);
    }
    return used;
}

void cpu_decoder_close(struct cpu_decoder *decoder)
{
    if (!decoder) { return; }
    memory_unmap(decoder->memory, decoder->bytes);
    free(decoder);
}

static enum status open_decoder(struct backend *backend, const struct decoder_options *options,
                                struct backend_workspace **out, struct err *err)
{
    TRY(cpu_workspace_open_for(backend, options->step_tokens, out, err));
    struct cpu_decoder *decoder = (*out)->decoder = calloc(1, sizeof *decoder);
    if (decoder) {
        decoder->bytes = lay_out(decoder, (*out)->weights, options, NULL);
        decoder->memory = memory_map(decoder->bytes);
    }
    if (!decoder || !decoder->memory) {
        cpu_workspace_close(*out);
        *out = NULL;
        return err_set(err, STATUS_NO_MEMORY, "no memory for %u blocks of keys and values (%zu bytes)", options->blocks,
                       options->blocks * block_bytes(backend));
    }
    lay_out(decoder, (*out)->weights, options, decoder->memory);
    return STATUS_OK;
}

static void copy_block(struct backend_workspace *workspace, uint32_t from, uint32_t to)
{
    size_t bytes = block_bytes(&workspace->weights->backend);
    char *pool = workspace->decoder->pool;
    if (from != to) { memcpy(pool + to * bytes, pool + from * bytes, bytes); }
}

/* --- attention --- */

/* A token of a pass. */
struct token {
    uint32_t row, index; /* index: in the pass */
    uint32_t position;
};

/* The token of the pass with that index; `from` is one that is not after it. */
static struct token find_token(const struct pass *pass, struct token from, uint32_t index)
{
    while (index >= pass->start[from.row] + pass->length[from.row]) { from.row++; }
    return (struct token){from.row, index, pass->first[from.row] + (index - pass->start[from.row])};
}

/* Queries (part 0), keys (1) or values (2) of a token, to be prepared. */
static struct head_rows part_of(const struct cpu_step *step, const struct token *token, uint32_t part)
{
    const struct backend_workspace *workspace = step->workspace;
    const struct cpu_weights *weights = workspace->weights;
    const struct model *model = weights->backend.model;
    const struct cpu_layer *layer = &weights->layers[step->layer];
    uint32_t query = model_query_width(model), key = model_key_width(model), head_dim = model_head_dim(model);
    const float *rotary = weights->rotary[model->layers[step->layer].local];
    size_t offset = part == 0 ? 0 : query + (part - 1) * (size_t)key;
    size_t at = token->index * (query + 2 * (size_t)key) + offset;
    const struct norm_weights *norm = part == 0 ? &layer->query_norm : &layer->key_norm;
    return (struct head_rows){
        .heads = part == 0 ? model->heads : model_key_heads(model),
        .head_dim = head_dim,
        .from = weights->qkv_half ? NULL : workspace->wide + at,
        .from16 = weights->qkv_half ? workspace->wide16 + at : NULL,
        .bias = layer->linear[ENGINE_QUERY_KEY].bias + offset,
        .norm = part < 2 && norm->gain ? norm : NULL,
        .rotary = part < 2 ? rotary + (size_t)token->position * head_dim : NULL,
        .scale = part == 0 ? 1.0f / sqrtf(model_score_width(model)) : 1.0f,
    };
}

/* Writes a head of keys or values into its place in a block, in steps of `stride` numbers. */
static void store_head(bool half, uint32_t head_dim, const float *from, char *to, size_t stride)
{
    for (uint32_t d = 0; d < head_dim; d++) {
        if (half) {
            ((uint16_t *)(void *)to)[d * stride] = bf16_of(from[d]);
        } else {
            ((float *)(void *)to)[d * stride] = from[d];
        }
    }
}

/* Writes the keys and values of some tokens into their blocks, and prepares their queries. */
static void store_chunk(void *context, unsigned thread, unsigned chunk)
{
    const struct cpu_step *step = context;
    struct backend_workspace *workspace = step->workspace;
    const struct kernels *kernels = workspace->weights->set->kernels;
    const struct model *model = workspace->weights->backend.model;
    struct cpu_decoder *decoder = workspace->decoder;
    const struct pass *pass = workspace->pass;
    uint32_t head_dim = model_head_dim(model), last = parallel_for_first(pass->extent, chunk + 1, step->chunks);
    bool half = pool_is_half(&workspace->weights->backend);
    size_t bytes = block_bytes(&workspace->weights->backend), number = half ? sizeof(uint16_t) : sizeof(float);
    float *row = decoder->row + thread * (size_t)model_key_width(model);
    struct token token = {0};
    for (uint32_t i = parallel_for_first(pass->extent, chunk, step->chunks); i < last; i++) {
        token = find_token(pass, token, i);
        struct head_rows part = part_of(step, &token, 0);
        part.to = decoder->query + i * (size_t)model_query_width(model);
        kernels->take_heads(&part);
        char *block = decoder->pool + pass->blocks[token.row][token.position / KEY_BLOCK] * bytes;
        uint32_t at = token.position % KEY_BLOCK;
        for (uint32_t values = 0; values < 2; values++) {
            part = part_of(step, &token, 1 + values);
            part.to = row;
            kernels->take_heads(&part);
            for (uint32_t head = 0; head < part.heads; head++) {
                size_t to = head_at(model, step->layer, head);
                to += values ? KEY_BLOCK * (size_t)head_dim + at * (size_t)values_width(head_dim) : at;
                store_head(half, head_dim, row + head * (size_t)head_dim, block + to * number, values ? 1 : KEY_BLOCK);
            }
        }
    }
}

/* Tokens of a sequence that attend together: ATTEND_QUERIES of their heads of queries share a head of keys. */
static uint32_t group_tokens(const struct model *model)
{
    uint32_t heads = model->heads / model_key_heads(model);
    return heads < ATTEND_QUERIES ? ATTEND_QUERIES / heads : 1;
}

/* A row's groups of tokens come after those of the rows before it. */
struct group {
    uint32_t row, before; /* groups of earlier rows */
};

static uint32_t count_groups(const struct pass *pass, uint32_t row, uint32_t tokens)
{
    return (pass->length[row] + tokens - 1) / tokens;
}

/* The row of the group with that index; `from` is one that is not after it. */
static struct group find_group(const struct pass *pass, struct group from, uint32_t index, uint32_t tokens)
{
    for (uint32_t count; index >= from.before + (count = count_groups(pass, from.row, tokens));) {
        from.before += count;
        from.row++;
    }
    return from;
}

/* A part is a group's heads of queries that share one of keys. */
static uint32_t count_parts(const struct pass *pass, const struct model *model)
{
    uint32_t groups = 0;
    for (uint32_t row = 0; row < pass->rows; row++) { groups += count_groups(pass, row, group_tokens(model)); }
    return groups * model_key_heads(model);
}

static void attend_chunk(void *context, unsigned thread, unsigned chunk)
{
    const struct cpu_step *step = context;
    struct backend_workspace *workspace = step->workspace;
    const struct cpu_weights *weights = workspace->weights;
    const struct model *model = weights->backend.model;
    struct cpu_decoder *decoder = workspace->decoder;
    const struct pass *pass = workspace->pass;
    uint32_t head_dim = model_head_dim(model), key_heads = model_key_heads(model), most = group_tokens(model);
    bool half = pool_is_half(&weights->backend);
    size_t width = model_query_width(model), number = half ? sizeof(uint16_t) : sizeof(float);
    struct group group = {0};
    uint32_t parts = count_parts(pass, model), last = parallel_for_first(parts, chunk + 1, step->chunks);
    for (uint32_t part = parallel_for_first(parts, chunk, step->chunks); part < last; part++) {
        uint32_t head = part % key_heads, heads = model->heads / key_heads;
        group = find_group(pass, group, part / key_heads, most);
        uint32_t first = (part / key_heads - group.before) * most, left = pass->length[group.row] - first;
        size_t at = (pass->start[group.row] + first) * width + (size_t)head * heads * head_dim;
        struct activations to = workspace->context;
        weights->set->kernels->attend_blocks(&(struct block_attention){
            .tokens = left < most ? left : most,
            .position = pass->first[group.row] + first,
            .window = model->layers[step->layer].local ? model->window : UINT32_MAX,
            .heads = heads,
            .head_dim = head_dim,
            .query = decoder->query + at,
            .token_stride = width,
            .pool = decoder->pool + head_at(model, step->layer, head) * number,
            .half = half,
            .stride = block_numbers(model),
            .values = KEY_BLOCK * (size_t)head_dim,
            .blocks = pass->blocks[group.row],
            .scratch = decoder->scratch + thread * scratch_floats(model),
            .context = {to.f32 ? to.f32 + at : NULL, to.bf16 ? to.bf16 + at : NULL},
        });
    }
}

static enum status attend(struct backend_workspace *workspace, uint32_t layer, struct err *err)
{
    (void)err;
    const struct model *model = workspace->weights->backend.model;
    const struct pass *pass = workspace->pass;
    struct cpu_step step = {workspace, layer, 0, cpu_chunks(workspace, pass->extent, LEAST_TOKENS)};
    cpu_do(&step, store_chunk);
    step.chunks = cpu_chunks(workspace, count_parts(pass, model), 1);
    cpu_do(&step, attend_chunk);
    return STATUS_OK;
}

/* --- lm_head --- */

static void logits_chunk(void *context, unsigned thread, unsigned chunk)
{
    (void)thread;
    const struct cpu_step *step = context;
    const struct cpu_linear *lm_head = &step->workspace->weights->lm_head;
    const struct cpu_decoder *decoder = step->workspace->decoder;
    uint32_t outputs = lm_head->weight.outputs, panels = (outputs + GEMM_MULTIPLE - 1) / GEMM_MULTIPLE;
    uint32_t last = parallel_for_first(panels, chunk + 1, step->chunks) * GEMM_MULTIPLE;
    struct gemm_job job = {
        .rows = decoder->asking,
        .weight = &lm_head->weight,
        .first_output = parallel_for_first(panels, chunk, step->chunks) * GEMM_MULTIPLE,
        .last_output = last < outputs ? last : outputs,
        .from_f32 = lm_head->kind == GEMM_BF16_DOT ? NULL : decoder->last,
        .from_bf16 = decoder->last16,
        .from = lm_head->kind == GEMM_INT8 ? decoder->int8 : decoder->int16,
        .end = GEMM_PLAIN,
        .to.f32 = decoder->logits,
    };
    gemm_run(step->workspace->weights->set, lm_head->kind, &job);
}

/* Converts the rows of `last` for lm_head. */
static void convert_last(const struct cpu_weights *weights, struct cpu_decoder *decoder)
{
    uint32_t width = weights->backend.model->hidden;
    const struct activations from = {.f32 = decoder->last};
    if (weights->lm_head.kind == GEMM_BF16_DOT) {
        for (size_t i = 0; i < decoder->asking * (size_t)width; i++) { decoder->last16[i] = bf16_of(decoder->last[i]); }
    } else if (weights->lm_head.kind == GEMM_INT8) {
        weights->set->int8->quantise(decoder->asking, width, from, decoder->int8);
    } else if (weights->lm_head.kind == GEMM_INT16) {
        weights->set->int8->quantise16(decoder->asking, width, from, decoder->int16);
    }
}

static enum status compute_logits(struct backend_workspace *workspace, const uint32_t *rows, uint32_t count,
                                  float **out, struct err *err)
{
    (void)err;
    struct cpu_decoder *decoder = workspace->decoder;
    const struct pass *pass = workspace->pass;
    size_t width = workspace->weights->backend.model->hidden;
    for (uint32_t i = 0; i < count; i++) {
        struct activations x = cpu_hidden_row(workspace, pass->start[rows[i]] + pass->length[rows[i]] - 1);
        memcpy(decoder->last + i * width, x.f32, width * sizeof *x.f32);
    }
    decoder->asking = count;
    convert_last(workspace->weights, decoder);
    uint32_t outputs = workspace->weights->lm_head.weight.outputs;
    struct cpu_step step = {workspace, 0, 0, cpu_chunks(workspace, outputs, LEAST_OUTPUTS)};
    cpu_do(&step, logits_chunk);
    *out = decoder->logits;
    return STATUS_OK;
}

const struct decoder_ops decoder_cpu = {
    .step_tokens = PASS_TOKENS,
    .block_bytes = block_bytes,
    .open = open_decoder,
    .attention = attend,
    .logits = compute_logits,
    .copy_block = copy_block,
};
