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
    float *pool;      /* [blocks], of block_floats each */
    float *query;     /* [step_tokens, queries], turned and scaled */
    float *row;       /* [threads, keys of a token] */
    float *sums;      /* [threads, queries of a token] */
    float *last;      /* [step_rows, hidden]: the tokens whose logits are asked for */
    uint16_t *last16; /* the same, if lm_head reads bf16 */
    float *logits;    /* [step_rows, vocabulary] */
    uint32_t asking;
};

static size_t head_floats(const struct model *model)
{
    return 2 * (size_t)KEY_BLOCK * model_head_dim(model);
}

static size_t block_floats(const struct model *model)
{
    return (size_t)model->layer_count * model_key_heads(model) * head_floats(model);
}

static size_t block_bytes(const struct model *model)
{
    return block_floats(model) * sizeof(float);
}

/* The offset of a head of keys within a block. */
static size_t head_at(const struct model *model, uint32_t layer, uint32_t head)
{
    return ((size_t)layer * model_key_heads(model) + head) * head_floats(model);
}

/* Lays the buffers out in `block` (NULL: nowhere, to learn the size) and returns their size. */
static size_t lay_out(struct cpu_decoder *decoder, const struct cpu_weights *weights,
                      const struct decoder_options *options, char *block)
{
    const struct model *model = weights->backend.model;
    size_t used = 0, rows = options->step_rows + (size_t)GEMM_ROWS_BEHIND, query = model_query_width(model);
    decoder->pool = memory_part(block, &used, options->blocks * block_bytes(model));
    decoder->query = memory_part(block, &used, options->step_tokens * query * sizeof(float));
    decoder->row = memory_part(block, &used, PARALLEL_THREADS_MAX * (size_t)model_key_width(model) * sizeof(float));
    decoder->sums = memory_part(block, &used, PARALLEL_THREADS_MAX * query * sizeof(float));
    decoder->logits = memory_part(block, &used, rows * model->vocabulary * sizeof(float));
    if (weights->lm_head.kind == GEMM_BF16_DOT) {
        decoder->last16 = memory_part(block, &used, rows * model->hidden * sizeof(uint16_t));
    } else {
        decoder->last = memory_part(block, &used, rows * model->hidden * sizeof(float));
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
                       options->blocks * block_bytes(backend->model));
    }
    lay_out(decoder, (*out)->weights, options, decoder->memory);
    return STATUS_OK;
}

static void copy_block(struct backend_workspace *workspace, uint32_t from, uint32_t to)
{
    size_t floats = block_floats(workspace->weights->backend.model);
    float *pool = workspace->decoder->pool;
    if (from != to) { memcpy(pool + to * floats, pool + from * floats, floats * sizeof *pool); }
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
    float *row = decoder->row + thread * (size_t)model_key_width(model);
    struct token token = {0};
    for (uint32_t i = parallel_for_first(pass->extent, chunk, step->chunks); i < last; i++) {
        token = find_token(pass, token, i);
        struct head_rows part = part_of(step, &token, 0);
        part.to = decoder->query + i * (size_t)model_query_width(model);
        kernels->take_heads(&part);
        float *block = decoder->pool + pass->blocks[token.row][token.position / KEY_BLOCK] * block_floats(model);
        uint32_t at = token.position % KEY_BLOCK;
        for (uint32_t values = 0; values < 2; values++) {
            part = part_of(step, &token, 1 + values);
            part.to = row;
            kernels->take_heads(&part);
            for (uint32_t head = 0; head < part.heads; head++) {
                const float *from = row + head * (size_t)head_dim;
                float *to = block + head_at(model, step->layer, head);
                if (values) {
                    memcpy(to + (KEY_BLOCK + at) * (size_t)head_dim, from, head_dim * sizeof *to);
                    continue;
                }
                for (uint32_t d = 0; d < head_dim; d++) { to[(size_t)d * KEY_BLOCK + at] = from[d]; }
            }
        }
    }
}

/* A part is a token's heads of queries that share one of keys. */
static void attend_chunk(void *context, unsigned thread, unsigned chunk)
{
    const struct cpu_step *step = context;
    struct backend_workspace *workspace = step->workspace;
    const struct cpu_weights *weights = workspace->weights;
    const struct model *model = weights->backend.model;
    struct cpu_decoder *decoder = workspace->decoder;
    const struct pass *pass = workspace->pass;
    uint32_t head_dim = model_head_dim(model), key_heads = model_key_heads(model), group = model->heads / key_heads;
    uint32_t parts = pass->extent * key_heads, last = parallel_for_first(parts, chunk + 1, step->chunks);
    uint32_t window = model->layers[step->layer].local ? model->window : UINT32_MAX;
    struct token token = {0};
    for (uint32_t part = parallel_for_first(parts, chunk, step->chunks); part < last; part++) {
        uint32_t head = part % key_heads;
        token = find_token(pass, token, part / key_heads);
        size_t at = token.index * (size_t)model_query_width(model) + (size_t)head * group * head_dim;
        struct activations to = workspace->context;
        weights->set->kernels->attend_blocks(&(struct block_attention){
            .heads = group,
            .head_dim = head_dim,
            .query = decoder->query + at,
            .pool = decoder->pool + head_at(model, step->layer, head),
            .stride = block_floats(model),
            .values = KEY_BLOCK * (size_t)head_dim,
            .blocks = pass->blocks[token.row],
            .first = token.position > window ? token.position - window : 0,
            .last = token.position,
            .sums = decoder->sums + thread * (size_t)model_query_width(model),
            .context = {to.f32 ? to.f32 + at : NULL, to.bf16 ? to.bf16 + at : NULL},
        });
    }
}

static enum status attend(struct backend_workspace *workspace, uint32_t layer, struct err *err)
{
    (void)err;
    uint32_t tokens = workspace->pass->extent, key_heads = model_key_heads(workspace->weights->backend.model);
    struct cpu_step step = {workspace, layer, 0, cpu_chunks(workspace, tokens, LEAST_TOKENS)};
    cpu_do(&step, store_chunk);
    step.chunks = cpu_chunks(workspace, tokens * key_heads, 1);
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
        .from_f32 = decoder->last,
        .from_bf16 = decoder->last16,
        .end = GEMM_PLAIN,
        .to.f32 = decoder->logits,
    };
    gemm_run(step->workspace->weights->set, lm_head->kind, &job);
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
        if (decoder->last16) {
            memcpy(decoder->last16 + i * width, x.bf16, width * sizeof *x.bf16);
        } else {
            memcpy(decoder->last + i * width, x.f32, width * sizeof *x.f32);
        }
    }
    decoder->asking = count;
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
