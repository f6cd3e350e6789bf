/* The meaning of CUDA's answers, the properties of a GPU, and the reason that is given if there is none. */
#include "harness.h"

#include <stdlib.h>
#include <unistd.h>

#include "cuda_host.h"
#include "cuda_host_case.h"
#include "engine/cuda/api.h"

TEST(answers_have_a_meaning)
{
    static const struct {
        cudaError_t answer;
        enum status status;
    } rows[] = {
        {cudaSuccess, STATUS_OK},
        {cudaErrorMemoryAllocation, STATUS_NO_MEMORY},
        {cudaErrorInvalidValue, STATUS_INTERNAL},
        {cudaErrorIllegalAddress, STATUS_DEVICE_LOST},
        {cudaErrorECCUncorrectable, STATUS_DEVICE_LOST},
        {cudaErrorLaunchFailure, STATUS_DEVICE_LOST},
        {cudaErrorNoKernelImageForDevice, STATUS_UNSUPPORTED},
    };
    const struct cuda_api *api = cuda_host_open(NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err err = {0};
        assert_int_equal(cuda_check(api, rows[i].answer, "trying", &err), rows[i].status);
        assert_int_equal(err.status, rows[i].status);
        assert_true(rows[i].status == STATUS_OK || strstr(err.message, "trying") != NULL);
    }
    cuda_host_close();
}

TEST(a_failed_product_is_not_a_lost_device)
{
    const struct cuda_api *api = cuda_host_open(NULL);
    struct err err = {0};
    assert_int_equal(cuda_blas_check(api, CUBLAS_STATUS_SUCCESS, "x", &err), STATUS_OK);
    assert_int_equal(cuda_blas_check(api, CUBLAS_STATUS_ALLOC_FAILED, "x", &err), STATUS_NO_MEMORY);
    assert_int_equal(cuda_blas_check(api, CUBLAS_STATUS_NOT_SUPPORTED, "x", &err), STATUS_UNSUPPORTED);
    assert_int_equal(cuda_blas_check(api, CUBLAS_STATUS_EXECUTION_FAILED, "a product", &err), STATUS_INTERNAL);
    assert_string_equal(err.message, "cuBLAS failed (a product): CUBLAS_STATUS_EXECUTION_FAILED");
    cuda_host_lose(0);
    assert_int_equal(cuda_blas_check(api, CUBLAS_STATUS_EXECUTION_FAILED, "a product", &err), STATUS_DEVICE_LOST);
    assert_non_null(strstr(err.message, "cudaErrorIllegalAddress"));
    cuda_host_close();
}

TEST(a_gpu_is_described)
{
    const struct cuda_api *api =
        cuda_host_open(&(struct cuda_host_options){.devices = 2, .capability = 86, .memory_bytes = 4096});
    struct err err = {0};
    struct cuda_device device;
    uint32_t count;
    MUST(cuda_device_count(api, &count, &err));
    assert_int_equal(count, 2);
    MUST(cuda_device_query(api, 1, &device, &err));
    assert_int_equal(device.number, 1);
    assert_string_equal(device.name, "host table");
    assert_int_equal(device.capability, 86);
    assert_int_equal(device.multiprocessors, 4);
    assert_int_equal(device.memory_bytes, 4096);
    assert_int_equal(device.driver, 13000);
    assert_int_equal(device.cublaslt, CUBLAS_VERSION);
    assert_int_equal(cuda_device_query(api, 2, &device, &err), STATUS_BAD_INPUT);
    assert_string_equal(err.message, "there is no GPU 2: they are numbered 0 to 1");
    assert_int_equal(cuda_device_query(api, -1, &device, &err), STATUS_BAD_INPUT);
    cuda_host_close();
}

TEST(an_old_gpu_is_refused)
{
    const struct cuda_api *api = cuda_host_open(&(struct cuda_host_options){.capability = 75});
    struct err err = {0};
    struct cuda_device device;
    assert_int_equal(cuda_device_query(api, 0, &device, &err), STATUS_UNSUPPORTED);
    assert_string_equal(err.message,
                        "GPU 0 (host table) has compute capability 7.5, and the kernels need 8.0 or newer");
    cuda_host_close();
}

TEST(the_reason_is_told)
{
    static const struct {
        cudaError_t answer;
        enum status status;
        const char *says;
    } rows[] = {
        {cudaErrorNoDevice, STATUS_UNSUPPORTED, "the NVIDIA driver sees no GPU"},
        {cudaErrorInsufficientDriver, STATUS_UNSUPPORTED, "the NVIDIA driver is too old: it serves CUDA 13.0"},
        {cudaErrorSystemNotReady, STATUS_UNSUPPORTED, "counting GPUs"},
        {cudaErrorUnknown, STATUS_DEVICE_LOST, "counting GPUs"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct cuda_api *api = cuda_host_open(NULL);
        struct err err = {0};
        uint32_t count;
        cuda_host_plant((struct cuda_host_fault){.call = "cudaGetDeviceCount", .at = 1, .answer = (int)rows[i].answer});
        assert_int_equal(cuda_device_count(api, &count, &err), rows[i].status);
        assert_non_null(strstr(err.message, rows[i].says));
        cuda_host_close();
    }
}

static cudaError_t no_driver(int *out)
{
    *out = 0; /* the runtime's answer without a driver */
    return cudaSuccess;
}

TEST(no_driver_is_told)
{
    struct cuda_api api = *cuda_host_open(NULL);
    api.cudaDriverGetVersion = no_driver;
    struct err err = {0};
    uint32_t count;
    assert_int_equal(cuda_device_count(&api, &count, &err), STATUS_UNSUPPORTED);
    /* The second message is right if there is a driver after all. */
    assert_true(strstr(err.message, "this machine has no NVIDIA driver (libcuda.so.1: ") == err.message ||
                strcmp(err.message, "the NVIDIA driver does not say its version") == 0);
    cuda_host_close();
}

/* The message is that of the folder that has the file and names its fault; else that of the first folder, where there
 * is no file. */
TEST(why_a_library_does_not_open_is_told)
{
    char folder[] = "/tmp/sluice-library-XXXXXX", path[128], slashed[64];
    assert_non_null(mkdtemp(folder));
    snprintf(slashed, sizeof slashed, "%s/", folder);
    snprintf(path, sizeof path, "%slibnone.so.1", slashed);
    const char *const folders[] = {"", slashed, "/nowhere/"};
    struct err err = {0};
    assert_null(cuda_library_open("libnone.so.1", folders, 3, &err));
    assert_string_equal(err.message, "libnone.so.1: cannot open shared object file: No such file or directory");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("this is no library, though it has its name", file);
    fclose(file);
    assert_null(cuda_library_open("libnone.so.1", folders, 3, &err));
    assert_int_equal(err.status, STATUS_UNSUPPORTED);
    assert_ptr_equal(strstr(err.message, path), err.message);
    assert_non_null(strstr(err.message, "file too short"));
    assert_non_null(cuda_library_open("libc.so.6", folders, 3, &err));
    assert_int_equal(unlink(path) + rmdir(folder), 0);
}
