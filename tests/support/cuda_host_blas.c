/* cuBLASLt and cuBLAS in the host table. Features that the engine does not use are refused as misuse, so that a new use
 * is noticed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_host_private.h"
#include "kernel_numbers.h"

/* --- The product, in plain loops: elements of any of three types, sums in f32, one rounding --- */

enum { MOST_PARTS = CUDA_HOST_ALGORITHMS };

size_t host_element_bytes(cudaDataType_t type)
{
    return type == CUDA_R_32F ? 4 : type == CUDA_R_16F || type == CUDA_R_16BF ? 2 : 0;
}

void host_put_element(void *matrix, cudaDataType_t type, size_t index, float value)
{
    if (type == CUDA_R_32F) {
        ((float *)matrix)[index] = value;
    } else {
        ((uint16_t *)matrix)[index] = type == CUDA_R_16F ? f16_from_f32(value) : bf16_from_f32(value);
    }
}

float host_get_element(const void *matrix, cudaDataType_t type, size_t index)
{
    if (type == CUDA_R_32F) { return ((const float *)matrix)[index]; }
    uint16_t bits = ((const uint16_t *)matrix)[index];
    return type == CUDA_R_16F ? f32_from_f16(bits) : f32_from_bf16(bits);
}

/* A matrix as floats, in `rows` runs of `length` elements each: the columns of a stored matrix, or its rows. */
static float *unpack(const void *from, const struct host_matrix *m, bool by_rows)
{
    uint64_t runs = by_rows ? m->rows : m->columns;
    uint64_t length = by_rows ? m->columns : m->rows;
    float *out = malloc(runs * length * sizeof *out + 1);
    if (out == NULL) { abort(); }
    for (uint64_t r = 0; r < runs; r++) {
        for (uint64_t i = 0; i < length; i++) {
            size_t at = by_rows ? i * (size_t)m->ld + r : r * (size_t)m->ld + i;
            out[r * length + i] = host_get_element(from, m->type, at);
        }
    }
    return out;
}

/* Adds in `parts` interleaved sums, so that the number of parts shows in the last bits. */
static float dot(const float *a, const float *b, uint64_t length, uint32_t parts)
{
    float sums[MOST_PARTS] = {0};
    for (uint32_t p = 0; p < parts; p++) {
        for (uint64_t i = p; i < length; i += parts) { sums[p] += a[i] * b[i]; }
    }
    for (uint32_t p = 1; p < parts; p++) { sums[0] += sums[p]; }
    return sums[0];
}

static float gelu_tanh(float x)
{
    return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

static float finish(const struct host_product *p, float value, uint64_t row)
{
    if (p->bias != NULL) { value += host_get_element(p->bias, p->d.type, row); }
    if (p->epilogue & CUBLASLT_EPILOGUE_GELU) { return gelu_tanh(value); }
    if (p->epilogue & CUBLASLT_EPILOGUE_RELU) { return isnan(value) || value > 0.0f ? value : 0.0f; }
    return value;
}

static void spoil(const struct host_product *p)
{
    if (!host.spoil.planted || host.spoil.type != p->d.type) { return; }
    uint32_t number = ++host.spoil.seen;
    if (number >= host.spoil.at && (host.spoil.times == 0 || number - host.spoil.at < host.spoil.times)) {
        host_put_element(p->to, p->d.type, 0, NAN);
    }
}

void host_multiply(const struct host_product *p)
{
    uint64_t inner = p->b.rows;
    float *a = unpack(p->from_a, &p->a, !p->transpose_a); /* [d.rows, inner] */
    float *b = unpack(p->from_b, &p->b, false);           /* [d.columns, inner] */
    for (uint64_t column = 0; column < p->d.columns; column++) {
        for (uint64_t row = 0; row < p->d.rows; row++) {
            size_t at = column * (size_t)p->d.ld + row;
            float value = p->alpha * dot(a + row * inner, b + column * inner, inner, p->algorithm + 1);
            if (p->beta != 0.0f) { value += p->beta * host_get_element(p->from_c, p->d.type, at); }
            host_put_element(p->to, p->d.type, at, finish(p, value, row));
        }
    }
    free(a);
    free(b);
    spoil(p);
}

/* --- Handles and descriptions --- */

struct host_desc {
    struct host_object object;
    cublasComputeType_t compute;
    cudaDataType_t scale;
    cublasOperation_t transpose_a, transpose_b;
    cublasLtEpilogue_t epilogue;
    const void *bias;
};

struct host_layout {
    struct host_object object;
    struct host_matrix matrix;
};

struct host_preference {
    struct host_object object;
    uint64_t workspace_bytes;
    uint32_t reductions;
};

cublasStatus_t host_cublasLtCreate(cublasLtHandle_t *out)
{
    ENTER(cublasLtCreate);
    if (host_capture_forbids("cublasLtCreate")) { return host_leave_blas(CUBLAS_STATUS_INTERNAL_ERROR); }
    *out = host_object_new(HOST_LT, sizeof(struct host_object));
    return host_leave_blas(CUBLAS_STATUS_SUCCESS);
}

static cublasStatus_t host_destroy_blas(void *handle, enum host_kind kind, const char *call)
{
    struct host_object *object = host_object(handle, kind, call);
    if (object == NULL) { return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE); }
    object->destroyed = true;
    return host_leave_blas(CUBLAS_STATUS_SUCCESS);
}

cublasStatus_t host_cublasLtDestroy(cublasLtHandle_t handle)
{
    ENTER(cublasLtDestroy);
    return host_destroy_blas(handle, HOST_LT, "cublasLtDestroy");
}

cublasStatus_t host_cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                             cudaDataType_t scale)
{
    ENTER(cublasLtMatmulDescCreate);
    struct host_desc *desc = host_object_new(HOST_DESC, sizeof *desc);
    desc->compute = compute;
    desc->scale = scale;
    desc->transpose_a = desc->transpose_b = CUBLAS_OP_N;
    desc->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    *out = (cublasLtMatmulDesc_t)(void *)desc;
    return host_leave_blas(CUBLAS_STATUS_SUCCESS);
}

cublasStatus_t host_cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle)
{
    ENTER(cublasLtMatmulDescDestroy);
    return host_destroy_blas(handle, HOST_DESC, "cublasLtMatmulDescDestroy");
}

/* Copies an attribute's value, whose size must be right. */
static cublasStatus_t take(void *to, size_t size, const void *from, size_t given, const char *call)
{
    if (from == NULL || size != given) {
        return host_misuse_blas("%s: a value of %zu bytes where it takes %zu", call, given, size);
    }
    memcpy(to, from, size);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t host_cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                                   cublasLtMatmulDescAttributes_t attribute, const void *value,
                                                   size_t bytes)
{
    static const char call[] = "cublasLtMatmulDescSetAttribute";
    ENTER(cublasLtMatmulDescSetAttribute);
    struct host_desc *desc = host_object(handle, HOST_DESC, call);
    if (desc == NULL) { return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE); }
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return host_leave_blas(take(&desc->transpose_a, sizeof desc->transpose_a, value, bytes, call));
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return host_leave_blas(take(&desc->transpose_b, sizeof desc->transpose_b, value, bytes, call));
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return host_leave_blas(take(&desc->epilogue, sizeof desc->epilogue, value, bytes, call));
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return host_leave_blas(take(&desc->bias, sizeof desc->bias, value, bytes, call));
    default:
        return host_leave_blas(host_misuse_blas("%s: the host table has no attribute %d", call, (int)attribute));
    }
}

cublasStatus_t host_cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                               uint64_t columns, int64_t ld)
{
    ENTER(cublasLtMatrixLayoutCreate);
    if (host_element_bytes(type) == 0 || rows == 0 || columns == 0 || ld < (int64_t)rows) {
        return host_leave_blas(
            host_misuse_blas("cublasLtMatrixLayoutCreate: type %d, %lu x %lu, %ld from column to column", (int)type,
                             (unsigned long)rows, (unsigned long)columns, (long)ld));
    }
    struct host_layout *layout = host_object_new(HOST_LAYOUT, sizeof *layout);
    layout->matrix = (struct host_matrix){type, rows, columns, ld};
    *out = (cublasLtMatrixLayout_t)(void *)layout;
    return host_leave_blas(CUBLAS_STATUS_SUCCESS);
}

cublasStatus_t host_cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle)
{
    ENTER(cublasLtMatrixLayoutDestroy);
    return host_destroy_blas(handle, HOST_LAYOUT, "cublasLtMatrixLayoutDestroy");
}

cublasStatus_t host_cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    ENTER(cublasLtMatmulPreferenceCreate);
    struct host_preference *preference = host_object_new(HOST_PREFERENCE, sizeof *preference);
    preference->reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    *out = (cublasLtMatmulPreference_t)(void *)preference;
    return host_leave_blas(CUBLAS_STATUS_SUCCESS);
}

cublasStatus_t host_cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle)
{
    ENTER(cublasLtMatmulPreferenceDestroy);
    return host_destroy_blas(handle, HOST_PREFERENCE, "cublasLtMatmulPreferenceDestroy");
}

cublasStatus_t host_cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                         cublasLtMatmulPreferenceAttributes_t attribute,
                                                         const void *value, size_t bytes)
{
    static const char call[] = "cublasLtMatmulPreferenceSetAttribute";
    ENTER(cublasLtMatmulPreferenceSetAttribute);
    struct host_preference *p = host_object(handle, HOST_PREFERENCE, call);
    if (p == NULL) { return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE); }
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return host_leave_blas(take(&p->workspace_bytes, sizeof p->workspace_bytes, value, bytes, call));
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return host_leave_blas(take(&p->reductions, sizeof p->reductions, value, bytes, call));
    default:
        return host_leave_blas(host_misuse_blas("%s: the host table has no attribute %d", call, (int)attribute));
    }
}

/* --- Heuristics and products: a call is checked, then enqueued --- */

enum { BIAS_ALIGNMENT = 16, MATRIX_ALIGNMENT = 16, ALGORITHM_MARK = 0x51d3ca11, PLAIN_PRODUCT_NS = 1000 };

struct host_blas {
    struct host_object object;
    struct host_stream *stream;
    bool has_workspace;
    bool whole_sums; /* no part of a sum is kept in the type of the output */
};

/* Puts a description and its layouts together. NULL op or layout: a misuse was reported. */
static bool put_together(const struct host_desc *desc, const struct host_layout *const layouts[4],
                         struct host_product *out)
{
    if (desc == NULL || layouts[0] == NULL || layouts[1] == NULL || layouts[2] == NULL || layouts[3] == NULL) {
        return false;
    }
    *out = (struct host_product){
        .transpose_a = desc->transpose_a == CUBLAS_OP_T,
        .a = layouts[0]->matrix,
        .b = layouts[1]->matrix,
        .d = layouts[3]->matrix,
        .bias = desc->epilogue & CUBLASLT_EPILOGUE_BIAS ? desc->bias : NULL,
        .epilogue = desc->epilogue,
    };
    const struct host_matrix *c = &layouts[2]->matrix;
    uint64_t outer = out->transpose_a ? out->a.columns : out->a.rows;
    uint64_t inner = out->transpose_a ? out->a.rows : out->a.columns;
    bool sizes = outer == out->d.rows && inner == out->b.rows && out->b.columns == out->d.columns;
    bool same = c->rows == out->d.rows && c->columns == out->d.columns && c->ld == out->d.ld && c->type == out->d.type;
    bool types = out->a.type == out->d.type && out->b.type == out->d.type;
    bool known = (desc->epilogue & ~(CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_GELU | CUBLASLT_EPILOGUE_RELU |
                                     CUBLASLT_EPILOGUE_DEFAULT)) == 0;
    bool bias = (desc->epilogue & CUBLASLT_EPILOGUE_BIAS) == 0 ||
                (desc->bias != NULL && (uintptr_t)desc->bias % BIAS_ALIGNMENT == 0);
    if (sizes && same && types && known && bias && desc->compute == CUBLAS_COMPUTE_32F && desc->scale == CUDA_R_32F &&
        desc->transpose_b == CUBLAS_OP_N) {
        return true;
    }
    (void)host_misuse_blas("a product whose parts do not fit: sizes %d, c like d %d, types %d, epilogue %d, bias %d",
                           sizes, same, types, known, bias);
    return false;
}

/* Identifies the products for which an algorithm was made; it may be used for no others. */
static uint64_t signature(const struct host_product *p)
{
    return (uint64_t)p->d.type << 32 | (uint64_t)p->epilogue;
}

static void write_algorithm(const struct host_product *p, uint32_t index, cublasLtMatmulHeuristicResult_t *out)
{
    *out = (cublasLtMatmulHeuristicResult_t){0};
    out->algo.data[0] = ALGORITHM_MARK;
    out->algo.data[1] = index;
    out->algo.data[2] = signature(p);
    out->workspaceSize = host.offered[index].workspace_bytes;
    out->state = CUBLAS_STATUS_SUCCESS;
}

static bool is_algorithm(const struct host_product *p, const cublasLtMatmulAlgo_t *algo)
{
    return algo->data[0] == ALGORITHM_MARK && algo->data[1] < host.offered_count && algo->data[2] == signature(p);
}

static bool find_parts(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const cublasLtMatrixLayout_t layouts[4],
                       const char *call, struct host_product *out)
{
    struct host_object *lt = host_object(handle, HOST_LT, call);
    const struct host_layout *found[4];
    for (int i = 0; i < 4; i++) { found[i] = host_object(layouts[i], HOST_LAYOUT, call); }
    if (!put_together(host_object(desc, HOST_DESC, call), found, out) || lt == NULL) { return false; }
    if (lt->device == host_current_device()) { return true; }
    (void)host_misuse_blas("%s: the handle is of device %d, but device %d is current", call, lt->device,
                           host_current_device());
    return false;
}

cublasStatus_t host_cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                                   cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                   cublasLtMatmulPreference_t preference_handle, int wanted,
                                                   cublasLtMatmulHeuristicResult_t results[], int *count)
{
    static const char call[] = "cublasLtMatmulAlgoGetHeuristic";
    ENTER(cublasLtMatmulAlgoGetHeuristic);
    *count = 0;
    struct host_product product;
    const struct host_preference *preference = host_object(preference_handle, HOST_PREFERENCE, call);
    const cublasLtMatrixLayout_t layouts[4] = {a, b, c, d};
    if (preference == NULL || wanted < 1 || !find_parts(handle, desc, layouts, call, &product)) {
        return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE);
    }
    if (preference->reductions & (CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE)) {
        return host_leave_blas(host_misuse_blas("%s: partial sums may be kept in the type of the output", call));
    }
    for (uint32_t i = 0; i < host.offered_count && *count < wanted; i++) {
        if (host.offered[i].workspace_bytes <= preference->workspace_bytes) {
            write_algorithm(&product, i, &results[(*count)++]);
        }
    }
    return host_leave_blas(*count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED);
}

static size_t matrix_bytes(const struct host_matrix *m)
{
    return ((m->columns - 1) * (size_t)m->ld + m->rows) * host_element_bytes(m->type);
}

/* Returns whether an operand is aligned and on the device; a misuse if not. */
static bool is_operand(const void *address, const struct host_matrix *m, const char *call, const char *what)
{
    if ((uintptr_t)address % MATRIX_ALIGNMENT != 0) {
        (void)host_misuse("%s: %s is not aligned to %d bytes", call, what, MATRIX_ALIGNMENT);
        return false;
    }
    return host_is_on_device(address, matrix_bytes(m), host_current_device(), call, what);
}

static bool are_operands(const struct host_product *p, const char *call)
{
    const struct host_matrix bias = {p->d.type, p->d.rows, 1, (int64_t)p->d.rows};
    return is_operand(p->from_a, &p->a, call, "A") && is_operand(p->from_b, &p->b, call, "B") &&
           (p->beta == 0.0f || is_operand(p->from_c, &p->d, call, "C")) && is_operand(p->to, &p->d, call, "D") &&
           (p->bias == NULL || is_operand(p->bias, &bias, call, "the bias"));
}

static void enqueue_product(struct host_stream *stream, const struct host_product *product)
{
    struct host_work *work = host_work_new(WORK_PRODUCT);
    work->as.product = *product;
    host_enqueue(stream, work);
}

cublasStatus_t host_cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                                   cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                                   const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                                   cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,
                                   size_t workspace_bytes, cudaStream_t stream_handle)
{
    static const char call[] = "cublasLtMatmul";
    ENTER(cublasLtMatmul);
    struct host_stream *stream = host_stream_for_work(stream_handle, call);
    struct host_product p;
    const cublasLtMatrixLayout_t layouts[4] = {a_layout, b_layout, c_layout, d_layout};
    if (stream == NULL || !find_parts(handle, desc, layouts, call, &p)) {
        return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE);
    }
    if (algo == NULL || !is_algorithm(&p, algo)) {
        return host_leave_blas(host_misuse_blas("%s: not an algorithm for this product", call));
    }
    const struct cuda_host_algorithm *offered = &host.offered[algo->data[1]];
    if (workspace_bytes < offered->workspace_bytes) {
        return host_leave_blas(host_misuse_blas("%s: %zu bytes of workspace where the algorithm needs %zu", call,
                                                workspace_bytes, offered->workspace_bytes));
    }
    if (workspace_bytes > 0 &&
        !host_is_on_device(workspace, workspace_bytes, host_current_device(), call, "workspace")) {
        return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE);
    }
    if (offered->answer != CUBLAS_STATUS_SUCCESS) { return host_leave_blas(offered->answer); }
    memcpy(&p.alpha, alpha, sizeof p.alpha);
    memcpy(&p.beta, beta, sizeof p.beta);
    p.from_a = a, p.from_b = b, p.from_c = c, p.to = d;
    p.algorithm = (uint32_t)algo->data[1];
    p.time_ns = offered->time_ns;
    if (!are_operands(&p, call)) { return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE); }
    enqueue_product(stream, &p);
    return host_leave_blas(CUBLAS_STATUS_SUCCESS);
}

/* cuBLAS */

cublasStatus_t host_cublasCreate_v2(cublasHandle_t *out)
{
    ENTER(cublasCreate_v2);
    if (host_capture_forbids("cublasCreate_v2")) { return host_leave_blas(CUBLAS_STATUS_INTERNAL_ERROR); }
    *out = host_object_new(HOST_BLAS, sizeof(struct host_blas));
    return host_leave_blas(CUBLAS_STATUS_SUCCESS);
}

cublasStatus_t host_cublasDestroy_v2(cublasHandle_t handle)
{
    ENTER(cublasDestroy_v2);
    return host_destroy_blas(handle, HOST_BLAS, "cublasDestroy_v2");
}

/* As in cuBLAS, another stream means the default workspace again. */
cublasStatus_t host_cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream_handle)
{
    ENTER(cublasSetStream_v2);
    struct host_blas *blas = host_object(handle, HOST_BLAS, "cublasSetStream_v2");
    struct host_stream *stream = host_object(stream_handle, HOST_STREAM, "cublasSetStream_v2");
    if (blas == NULL || stream == NULL) { return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE); }
    blas->stream = stream;
    blas->has_workspace = false;
    return host_leave_blas(CUBLAS_STATUS_SUCCESS);
}

cublasStatus_t host_cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes)
{
    static const char call[] = "cublasSetWorkspace_v2";
    ENTER(cublasSetWorkspace_v2);
    struct host_blas *blas = host_object(handle, HOST_BLAS, call);
    if (blas == NULL || !host_is_on_device(workspace, bytes, host_current_device(), call, "the workspace")) {
        return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE);
    }
    blas->has_workspace = true;
    return host_leave_blas(CUBLAS_STATUS_SUCCESS);
}

cublasStatus_t host_cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    ENTER(cublasSetMathMode);
    struct host_blas *blas = host_object(handle, HOST_BLAS, "cublasSetMathMode");
    if (blas == NULL) { return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE); }
    blas->whole_sums = (mode & CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) != 0;
    return host_leave_blas(CUBLAS_STATUS_SUCCESS);
}

cublasStatus_t host_cublasGemmEx(cublasHandle_t handle, cublasOperation_t transpose_a, cublasOperation_t transpose_b,
                                 int m, int n, int k, const void *alpha, const void *a, cudaDataType a_type, int lda,
                                 const void *b, cudaDataType b_type, int ldb, const void *beta, void *c,
                                 cudaDataType c_type, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
    static const char call[] = "cublasGemmEx";
    ENTER(cublasGemmEx);
    struct host_blas *blas = host_object(handle, HOST_BLAS, call);
    if (blas == NULL || blas->stream == NULL) {
        return host_leave_blas(host_misuse_blas("%s: a handle without a stream", call));
    }
    struct host_stream *stream = host_stream_for_work((cudaStream_t)blas->stream, call);
    if (stream == NULL) { return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE); }
    if (transpose_b != CUBLAS_OP_N || a_type != c_type || b_type != c_type || host_element_bytes(c_type) == 0 ||
        compute != CUBLAS_COMPUTE_32F || algo != CUBLAS_GEMM_DEFAULT || m < 1 || n < 1 || k < 1) {
        return host_leave_blas(host_misuse_blas("%s: something that the host table does not do", call));
    }
    if (!blas->whole_sums) {
        return host_leave_blas(host_misuse_blas("%s: partial sums may be kept in the type of the output", call));
    }
    if (stream->recording != NULL && !blas->has_workspace) {
        return host_leave_blas(host_misuse_blas("%s: in a capture it must not allocate its workspace", call));
    }
    bool transposed = transpose_a == CUBLAS_OP_T;
    struct host_product p = {
        .transpose_a = transposed,
        .a = {a_type, (uint64_t)(transposed ? k : m), (uint64_t)(transposed ? m : k), lda},
        .b = {b_type, (uint64_t)k, (uint64_t)n, ldb},
        .d = {c_type, (uint64_t)m, (uint64_t)n, ldc},
        .from_a = a,
        .from_b = b,
        .from_c = c,
        .to = c,
        .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
        .time_ns = PLAIN_PRODUCT_NS,
    };
    memcpy(&p.alpha, alpha, sizeof p.alpha);
    memcpy(&p.beta, beta, sizeof p.beta);
    if (!are_operands(&p, call)) { return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE); }
    enqueue_product(stream, &p);
    return host_leave_blas(CUBLAS_STATUS_SUCCESS);
}
