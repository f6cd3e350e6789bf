/* The host table's matrix products: their rounding, and reports of calls that cuBLASLt would refuse. test_cuda_products
 * shows that they are right. */
#include "harness.h"

#include <math.h>

#include "cuda_host.h"
#include "cuda_host_case.h"
#include "cuda_host_private.h"

enum { OUTPUTS = 16, INPUTS = 40, ROWS = 5, ROOM = 64 * 64 };

/* A number between two neighbours becomes the nearer one; in the middle, the even one. */
TEST(rounding_is_to_nearest)
{
    static const cudaDataType_t types[] = {CUDA_R_16F, CUDA_R_16BF};
    for (int t = 0; t < 2; t++) {
        uint32_t infinity = t == 0 ? 0x7c00u : 0x7f80u;
        for (uint32_t bits = 0; bits + 1 < infinity; bits++) {
            uint16_t low = (uint16_t)bits;
            uint16_t high = (uint16_t)(bits + 1);
            uint16_t got[3];
            float middle = (float)(0.5 * ((double)host_get_element(&low, types[t], 0) + //
                                          (double)host_get_element(&high, types[t], 0)));
            if (middle < 0x1p-126f) { continue; /* subnormal floats have no neighbours between to test with */ }
            host_put_element(got, types[t], 0, nextafterf(middle, 0.0f));
            host_put_element(got, types[t], 1, middle);
            host_put_element(got, types[t], 2, nextafterf(middle, INFINITY));
            assert_int_equal(got[0], low);
            assert_int_equal(got[1], low % 2 == 0 ? low : high);
            assert_int_equal(got[2], high);
        }
    }
    uint16_t half;
    host_put_element(&half, CUDA_R_16F, 0, 65519.0f);
    assert_int_equal(half, 0x7bff);
    host_put_element(&half, CUDA_R_16F, 0, -65520.0f);
    assert_int_equal(half, 0xfc00);
}

/* The parts of a product of the engine's kind: to [rows, outputs] = from [rows, inputs] x weight [outputs, inputs]^T.
 */
struct parts {
    const struct cuda_api *api;
    cudaDataType_t type;
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t weight_layout, from_layout, to_layout;
    cublasLtMatmulPreference_t preference;
    cudaStream_t stream;
    char *weight, *from, *bias, *residual, *to;
    float values[4][ROOM]; /* of weight, from, bias, residual, as the type has them */
};

static char *matrix(struct parts *p, int index, uint32_t count)
{
    static char bytes[ROOM * 4];
    uint64_t x = (uint64_t)index * 7919 + 1;
    for (uint32_t i = 0; i < count; i++) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        host_put_element(bytes, p->type, i, (float)((double)(x >> 33) * 0x1p-30 - 1.0));
        p->values[index][i] = host_get_element(bytes, p->type, i);
    }
    char *device = device_new(p->api, count * host_element_bytes(p->type));
    cuda_host_poke(device, bytes, count * host_element_bytes(p->type));
    return device;
}

static void parts_open(struct parts *p, const struct cuda_api *api, cudaDataType_t type, cublasLtEpilogue_t epilogue)
{
    cublasOperation_t transposed = CUBLAS_OP_T;
    uint64_t workspace = 0;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    p->api = api;
    p->type = type;
    p->stream = stream_new(api);
    p->weight = matrix(p, 0, OUTPUTS * INPUTS);
    p->from = matrix(p, 1, ROWS * INPUTS);
    p->bias = matrix(p, 2, OUTPUTS);
    p->residual = matrix(p, 3, ROWS * OUTPUTS);
    p->to = device_new(api, ROWS * OUTPUTS * host_element_bytes(type));
    MUST(api->cublasLtCreate(&p->lt));
    MUST(api->cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    MUST(api->cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
    MUST(api->cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    MUST(api->cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias));
    MUST(api->cublasLtMatrixLayoutCreate(&p->weight_layout, type, INPUTS, OUTPUTS, INPUTS));
    MUST(api->cublasLtMatrixLayoutCreate(&p->from_layout, type, INPUTS, ROWS, INPUTS));
    MUST(api->cublasLtMatrixLayoutCreate(&p->to_layout, type, OUTPUTS, ROWS, OUTPUTS));
    MUST(api->cublasLtMatmulPreferenceCreate(&p->preference));
    MUST(api->cublasLtMatmulPreferenceSetAttribute(p->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                   sizeof workspace));
    MUST(api->cublasLtMatmulPreferenceSetAttribute(p->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                   &reductions, sizeof reductions));
}

static void parts_close(struct parts *p)
{
    const struct cuda_api *api = p->api;
    MUST(api->cublasLtMatmulPreferenceDestroy(p->preference));
    MUST(api->cublasLtMatrixLayoutDestroy(p->weight_layout));
    MUST(api->cublasLtMatrixLayoutDestroy(p->from_layout));
    MUST(api->cublasLtMatrixLayoutDestroy(p->to_layout));
    MUST(api->cublasLtMatmulDescDestroy(p->desc));
    MUST(api->cublasLtDestroy(p->lt));
    MUST(api->cudaStreamDestroy(p->stream));
    MUST(api->cudaFree(p->weight));
    MUST(api->cudaFree(p->from));
    MUST(api->cudaFree(p->bias));
    MUST(api->cudaFree(p->residual));
    MUST(api->cudaFree(p->to));
}

static int heuristics(const struct parts *p, int wanted, cublasLtMatmulHeuristicResult_t *results)
{
    int count = -1;
    (void)p->api->cublasLtMatmulAlgoGetHeuristic(p->lt, p->desc, p->weight_layout, p->from_layout, p->to_layout,
                                                 p->to_layout, p->preference, wanted, results, &count);
    return count;
}

static cublasStatus_t multiply(const struct parts *p, const cublasLtMatmulAlgo_t *algo, float beta)
{
    float alpha = 1.0f;
    return p->api->cublasLtMatmul(p->lt, p->desc, &alpha, p->weight, p->weight_layout, p->from, p->from_layout, &beta,
                                  p->residual, p->to_layout, p->to, p->to_layout, algo, NULL, 0, p->stream);
}

TEST(misuse_of_products_is_reported)
{
    static struct parts p;
    misuse_count = 0;
    const struct cuda_api *api = cuda_host_open(&(struct cuda_host_options){
        .misuse = note_misuse, .devices = 2, .algorithms = {{1000, 0, 0}, {1000, 1 << 20, 0}}});
    parts_open(&p, api, CUDA_R_16F, CUBLASLT_EPILOGUE_BIAS);
    uint64_t workspace = 1 << 20;
    MUST(api->cublasLtMatmulPreferenceSetAttribute(p.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                   sizeof workspace));
    cublasLtMatmulHeuristicResult_t results[2];
    assert_int_equal(heuristics(&p, 2, results), 2);

    assert_int_not_equal(multiply(&p, &results[1].algo, 0.0f), 0);
    assert_misuse("0 bytes of workspace where the algorithm needs 1048576");
    cublasLtMatmulAlgo_t nonsense = {{1, 2, 3}};
    assert_int_not_equal(multiply(&p, &nonsense, 0.0f), 0);
    assert_misuse("not an algorithm for this product");
    struct parts moved = p;
    moved.from += 2;
    assert_int_not_equal(multiply(&moved, &results[0].algo, 0.0f), 0);
    assert_misuse("B is not aligned");
    moved = p;
    moved.residual += OUTPUTS * 2;
    assert_int_not_equal(multiply(&moved, &results[0].algo, 1.0f), 0);
    assert_misuse("C: 160 bytes, but there are only 128 of the 160");
    MUST(multiply(&moved, &results[0].algo, 0.0f)); /* with beta 0, C is not read */
    moved = p;
    moved.from_layout = p.to_layout;
    assert_int_not_equal(multiply(&moved, &results[0].algo, 0.0f), 0);
    assert_misuse("parts do not fit");
    MUST(api->cudaSetDevice(1));
    assert_int_not_equal(multiply(&p, &results[0].algo, 0.0f), 0);
    assert_misuse("device 1 is current");
    MUST(api->cudaSetDevice(0));
    uint32_t any = CUBLASLT_REDUCTION_SCHEME_MASK;
    MUST(api->cublasLtMatmulPreferenceSetAttribute(p.preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &any,
                                                   sizeof any));
    (void)heuristics(&p, 2, results);
    assert_misuse("partial sums may be kept in the type of the output");
    parts_close(&p);
    cuda_host_close();
    assert_int_equal(misuse_count, 0);
}
