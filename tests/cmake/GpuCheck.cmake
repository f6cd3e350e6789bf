# tests/gpu: the driver of the GPU check, and where the CUDA engine is built the kernels' tests once more, for a GPU. None
# of it runs on a GPU by itself (tests/gpu/run.py does that). The scripts that a machine without a GPU can run are run here
# as tests, on tiny models and the CPU backend, so that they do not rot until somebody has a GPU; not in builds with a
# sanitizer, because unit.engine covers the same parts of the engine.
set(gpu ${CMAKE_CURRENT_SOURCE_DIR}/gpu)
set(gpu_check ${gpu}/gpu_check.c ${gpu}/gpu_job.c ${gpu}/gpu_run.c)

add_executable(gpu_check ${gpu_check})
target_include_directories(gpu_check PRIVATE ${gpu})
if(TARGET cuda_runtime)
  target_link_libraries(gpu_check PRIVATE engine_with_cuda)
  set_target_properties(gpu_check PROPERTIES LINKER_LANGUAGE C)
else()
  target_link_libraries(gpu_check PRIVATE engine)
endif()

# The same over the host table and the SIMT shim.
if(TARGET engine_on_host)
  add_executable(gpu_check_host ${gpu_check} ${gpu}/gpu_check_host.c)
  target_include_directories(gpu_check_host PRIVATE ${gpu})
  target_link_libraries(gpu_check_host PRIVATE engine_on_host)
endif()

# gpu_kernels_<x>: tests/unit/kernels/test_<x>.c with the kernels as nvcc builds them. Files that test the shim, or that
# run on no device, are left out.
if(SLUICE_CUDA_BUILD)
  file(GLOB support CONFIGURE_DEPENDS support/kernel_*.c)
  list(FILTER support EXCLUDE REGEX "/kernel_device_host\\.c$")
  add_library(kernel_device_gpu STATIC ${gpu}/kernel_device_gpu.c ${support} ${SLUICE_KERNEL_HOST_SOURCES})
  set_target_properties(kernel_device_gpu PROPERTIES LINKER_LANGUAGE C)
  target_include_directories(kernel_device_gpu PUBLIC support)
  target_link_libraries(kernel_device_gpu PUBLIC cuda_headers kernels CUDA::cudart_static m)
  sluice_kernels(ptx_probe_gpu ${gpu}/ptx_probe_gpu.cu)
  target_include_directories(ptx_probe_gpu PRIVATE support)
  sluice_kernels(wgmma_probe_gpu HOPPER ${gpu}/wgmma_probe_gpu.cu)
  target_include_directories(wgmma_probe_gpu PRIVATE support)
  target_link_libraries(ptx_probe_gpu PUBLIC wgmma_probe_gpu)
  add_custom_target(gpu_kernels)
  file(GLOB files CONFIGURE_DEPENDS unit/kernels/test_*.c)
  list(FILTER files EXCLUDE REGEX "/test_(simt|tiles)\\.c$")
  foreach(file ${files})
    get_filename_component(stem ${file} NAME_WE)
    string(REPLACE "test_" "gpu_kernels_" target ${stem})
    add_executable(${target} ${file})
    target_link_libraries(${target} PRIVATE ptx_probe_gpu kernel_device_gpu harness)
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C)
    add_dependencies(gpu_kernels ${target})
  endforeach()

  # gpu_attention: how fast the attention kernel is (tests/gpu/attention.py runs torch's on the same rows).
  add_executable(gpu_attention ${CMAKE_SOURCE_DIR}/tools/bench/gpu_attention.c)
  set_target_properties(gpu_attention PROPERTIES LINKER_LANGUAGE C)
  target_link_libraries(gpu_attention PRIVATE kernel_device_gpu)
endif()

# Matrix products by the daemon's own way to cuBLASLt; run as the kernels' tests are.
if(TARGET cuda_runtime)
  add_executable(gpu_kernels_products unit/engine/test_cuda_products.c ${gpu}/products_gpu.c support/kernel_numbers.c)
  target_include_directories(gpu_kernels_products PRIVATE support)
  target_link_libraries(gpu_kernels_products PRIVATE engine_with_cuda harness)
  set_target_properties(gpu_kernels_products PROPERTIES LINKER_LANGUAGE C)
  add_dependencies(gpu_kernels gpu_kernels_products)
endif()

foreach(file check run) # cost: about how many seconds, see Cases.cmake
  add_test(NAME gpu.${file} WORKING_DIRECTORY ${gpu}
    COMMAND ${SLUICE_VENV}/bin/python -B ${CMAKE_SOURCE_DIR}/tests/support/cases.py test_${file})
  set_tests_properties(gpu.${file} PROPERTIES LABELS "gpu;engine" FIXTURES_REQUIRED python TIMEOUT 1200 COST 40
    ENVIRONMENT "SLUICE_BUILD=${CMAKE_BINARY_DIR};SLUICE_BINARY=$<TARGET_FILE:sluice>;PYTHONUNBUFFERED=1;OPENBLAS_NUM_THREADS=1")
endforeach()
