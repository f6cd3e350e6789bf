/* Enqueuing a product: by cuBLASLt in one step, else by cublasGemmEx and what follows in a second one. */
#include <assert.h>

#include "engine/cuda_gemm_parts.h"

cudaDataType_t gemm_data_type(enum kernel_type type)
{
    return type == KERNEL_F32 ? CUDA_R_32F : type == KERNEL_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

static bool is_aligned(const void *address, uintptr_t to)
{
    return (uintptr_t)address % to == 0;
}

cublasStatus_t gemm_set_bias(const struct gemm_runner *runner, const struct gemm_plan *plan,
                             const struct gemm_operands *operands)
{
    if (plan->key.shape.after == GEMM_ALONE)
        return CUBLAS_STATUS_SUCCESS;
    return runner->gemm->api->cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                             &operands->bias, sizeof operands->bias);
}

cublasStatus_t gemm_multiply(struct gemm_runner *runner, const struct gemm_plan *plan,
                             const cublasLtMatmulAlgo_t *algorithm, const struct gemm_operands *operands)
{
    const bool adds = plan->key.shape.after == GEMM_BIAS_RESIDUAL;
    const float alpha = 1.0f;
    const float beta = adds ? 1.0f : 0.0f;
    const void *added = adds ? operands->residual : operands->to;
    cublasStatus_t answer = gemm_set_bias(runner, plan, operands);
    if (answer != CUBLAS_STATUS_SUCCESS)
        return answer;
    return runner->gemm->api->cublasLtMatmul(runner->lt, plan->desc, &alpha, operands->weight, plan->weight,
                                             operands->from, plan->from, &beta, added, plan->to, operands->to, plan->to,
                                             algorithm, runner->workspace, runner->gemm->workspace_bytes,
                                             runner->queue.stream);
}

static enum kernel_activation activation_of(enum gemm_after after)
{
    return after == GEMM_BIAS_GELU ? KERNEL_GELU_TANH : after == GEMM_BIAS_RELU ? KERNEL_RELU : KERNEL_IDENTITY;
}

static enum status add_bias(struct gemm_runner *runner, const struct gemm_plan *plan,
                            const struct gemm_operands *operands, struct err *err)
{
    const struct kernel_activate_args args = {
        .type = plan->key.shape.type,
        .activation = activation_of(plan->key.shape.after),
        .bound = plan->key.rows,
        .width = plan->key.shape.outputs,
        .count = operands->count,
        .bias = operands->bias,
        .x = operands->to,
    };
    return cuda_check(runner->gemm->api, kernel_activate(&runner->queue, &args), "adding a bias", err);
}

/* The product is rounded to its type once more than in one step, before the bias is added. */
static enum status multiply_plainly(struct gemm_runner *runner, const struct gemm_plan *plan,
                                    const struct gemm_operands *operands, struct err *err)
{
    const struct cuda_api *api = runner->gemm->api;
    const struct gemm_shape *shape = &plan->key.shape;
    const cudaDataType_t type = gemm_data_type(shape->type);
    const bool adds = shape->after == GEMM_BIAS_RESIDUAL;
    const float alpha = 1.0f;
    const float beta = adds ? 1.0f : 0.0f;
    if (adds && operands->residual != operands->to)
        TRY(cuda_check(api,
                       api->cudaMemcpyAsync(operands->to, operands->residual,
                                            (size_t)plan->key.rows * shape->outputs * kernel_type_bytes(shape->type),
                                            cudaMemcpyDeviceToDevice, runner->queue.stream),
                       "copying a residual", err));
    TRY(cuda_blas_check(api,
                        api->cublasGemmEx(runner->blas, CUBLAS_OP_T, CUBLAS_OP_N, (int)shape->outputs,
                                          (int)plan->key.rows, (int)shape->inputs, &alpha, operands->weight, type,
                                          (int)shape->inputs, operands->from, type, (int)shape->inputs, &beta,
                                          operands->to, type, (int)shape->outputs, CUBLAS_COMPUTE_32F,
                                          CUBLAS_GEMM_DEFAULT),
                        "a plain product", err));
    return shape->after == GEMM_ALONE ? STATUS_OK : add_bias(runner, plan, operands, err);
}

enum status gemm_run(struct gemm_runner *runner, const struct gemm_plan *plan, const struct gemm_operands *operands,
                     struct err *err)
{
    assert(is_aligned(operands->from, GEMM_ALIGNMENT) && is_aligned(operands->weight, GEMM_ALIGNMENT));
    assert(is_aligned(operands->to, GEMM_ALIGNMENT));
    assert(plan->key.shape.after != GEMM_BIAS_RESIDUAL || is_aligned(operands->residual, GEMM_ALIGNMENT));
    assert(plan->key.shape.after == GEMM_ALONE || is_aligned(operands->bias, GEMM_BIAS_ALIGNMENT));
    if (plan->plain)
        return multiply_plainly(runner, plan, operands, err);
    cublasStatus_t answer = gemm_multiply(runner, plan, &plan->algorithm, operands);
    return cuda_blas_check(runner->gemm->api, answer, "a product", err);
}
