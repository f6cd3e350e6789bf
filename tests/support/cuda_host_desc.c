/* cuBLASLt's handles and descriptions in the host table. What the engine does not use is refused as misuse, so that it
 * cannot be used without anybody noticing. */
#include <string.h>

#include "cuda_host_private.h"

cublasStatus_t host_cublasLtCreate(cublasLtHandle_t *out)
{
    ENTER(cublasLtCreate);
    if (host_capture_forbids("cublasLtCreate"))
        return host_leave_blas(CUBLAS_STATUS_INTERNAL_ERROR);
    *out = host_object_new(HOST_LT, sizeof(struct host_object));
    return host_leave_blas(CUBLAS_STATUS_SUCCESS);
}

cublasStatus_t host_destroy_blas(void *handle, enum host_kind kind, const char *call)
{
    struct host_object *object = host_object(handle, kind, call);
    if (object == NULL)
        return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE);
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
    if (from == NULL || size != given)
        return host_misuse_blas("%s: a value of %zu bytes where it takes %zu", call, given, size);
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
    if (desc == NULL)
        return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE);
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
    if (host_element_bytes(type) == 0 || rows == 0 || columns == 0 || ld < (int64_t)rows)
        return host_leave_blas(
            host_misuse_blas("cublasLtMatrixLayoutCreate: type %d, %lu x %lu, %ld from column to column", (int)type,
                             (unsigned long)rows, (unsigned long)columns, (long)ld));
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
    if (p == NULL)
        return host_leave_blas(CUBLAS_STATUS_INVALID_VALUE);
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return host_leave_blas(take(&p->workspace_bytes, sizeof p->workspace_bytes, value, bytes, call));
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return host_leave_blas(take(&p->reductions, sizeof p->reductions, value, bytes, call));
    default:
        return host_leave_blas(host_misuse_blas("%s: the host table has no attribute %d", call, (int)attribute));
    }
}
