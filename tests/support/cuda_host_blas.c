/* The heuristics and products of cuBLASLt and cuBLAS in the host table: what is asked for is checked, then enqueued. */
#include <string.h>

#include "cuda_host_private.h"

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
    if (desc == NULL || layouts[0] == NULL || layouts[1] == NULL || layouts[2] == NULL || layouts[3] == NULL)
        return false;
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
        desc->transpose_b == CUBLAS_OP_N)
        return true;
    (void)host_misuse_blas("a product whose parts do not fit: sizes %d, c like d %d, types %d, epilogue %d, bias %d",
                           sizes, same, types, known, bias);
    return false;
}

/* What an algorithm was made for; it may be used for nothing else. */
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
    for (int i = 0; i < 4; i++)
        found[i] = host_object(layouts[i], HOST_LAYOUT, call);
    if (!put_together(host_object(desc, HOST_DESC, call), found, out) || lt == NULL)
        return false;
    if (lt->device == host_current_device())
        return true;
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
    if (preference == NULL || wanted < 1 || !find_parts(handle, desc, layouts, call, &product))
        return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE);
    if (preference->reductions & (CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE))
        return host_leave_blas(host_misuse_blas("%s: partial sums may be kept in the type of the output", call));
    for (uint32_t i = 0; i < host.offered_count && *count < wanted; i++) {
        if (host.offered[i].workspace_bytes <= preference->workspace_bytes)
            write_algorithm(&product, i, &results[(*count)++]);
    }
    return host_leave_blas(*count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED);
}

static size_t matrix_bytes(const struct host_matrix *m)
{
    return ((m->columns - 1) * (size_t)m->ld + m->rows) * host_element_bytes(m->type);
}

/* Whether an operand is where it should be. */
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
    if (stream == NULL || !find_parts(handle, desc, layouts, call, &p))
        return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE);
    if (algo == NULL || !is_algorithm(&p, algo))
        return host_leave_blas(host_misuse_blas("%s: not an algorithm for this product", call));
    const struct cuda_host_algorithm *offered = &host.offered[algo->data[1]];
    if (workspace_bytes < offered->workspace_bytes)
        return host_leave_blas(host_misuse_blas("%s: %zu bytes of workspace where the algorithm needs %zu", call,
                                                workspace_bytes, offered->workspace_bytes));
    if (workspace_bytes > 0 && !host_is_on_device(workspace, workspace_bytes, host_current_device(), call, "workspace"))
        return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE);
    if (offered->answer != CUBLAS_STATUS_SUCCESS)
        return host_leave_blas(offered->answer);
    memcpy(&p.alpha, alpha, sizeof p.alpha);
    memcpy(&p.beta, beta, sizeof p.beta);
    p.from_a = a, p.from_b = b, p.from_c = c, p.to = d;
    p.algorithm = (uint32_t)algo->data[1];
    p.time_ns = offered->time_ns;
    if (!are_operands(&p, call))
        return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE);
    enqueue_product(stream, &p);
    return host_leave_blas(CUBLAS_STATUS_SUCCESS);
}

/* cuBLAS */

cublasStatus_t host_cublasCreate_v2(cublasHandle_t *out)
{
    ENTER(cublasCreate_v2);
    if (host_capture_forbids("cublasCreate_v2"))
        return host_leave_blas(CUBLAS_STATUS_INTERNAL_ERROR);
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
    if (blas == NULL || stream == NULL)
        return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE);
    blas->stream = stream;
    blas->has_workspace = false;
    return host_leave_blas(CUBLAS_STATUS_SUCCESS);
}

cublasStatus_t host_cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes)
{
    static const char call[] = "cublasSetWorkspace_v2";
    ENTER(cublasSetWorkspace_v2);
    struct host_blas *blas = host_object(handle, HOST_BLAS, call);
    if (blas == NULL || !host_is_on_device(workspace, bytes, host_current_device(), call, "the workspace"))
        return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE);
    blas->has_workspace = true;
    return host_leave_blas(CUBLAS_STATUS_SUCCESS);
}

cublasStatus_t host_cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    ENTER(cublasSetMathMode);
    struct host_blas *blas = host_object(handle, HOST_BLAS, "cublasSetMathMode");
    if (blas == NULL)
        return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE);
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
    if (blas == NULL || blas->stream == NULL)
        return host_leave_blas(host_misuse_blas("%s: a handle without a stream", call));
    struct host_stream *stream = host_stream_for_work((cudaStream_t)blas->stream, call);
    if (stream == NULL)
        return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE);
    if (transpose_b != CUBLAS_OP_N || a_type != c_type || b_type != c_type || host_element_bytes(c_type) == 0 ||
        compute != CUBLAS_COMPUTE_32F || algo != CUBLAS_GEMM_DEFAULT || m < 1 || n < 1 || k < 1)
        return host_leave_blas(host_misuse_blas("%s: something that the host table does not do", call));
    if (!blas->whole_sums)
        return host_leave_blas(host_misuse_blas("%s: partial sums may be kept in the type of the output", call));
    if (stream->recording != NULL && !blas->has_workspace)
        return host_leave_blas(host_misuse_blas("%s: in a capture it must not allocate its workspace", call));
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
    if (!are_operands(&p, call))
        return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE);
    enqueue_product(stream, &p);
    return host_leave_blas(CUBLAS_STATUS_SUCCESS);
}
