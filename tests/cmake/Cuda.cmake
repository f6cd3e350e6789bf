# The CUDA engine without a GPU: the kernels by a C++ compiler under the SIMT shim (support/simt.h), the engine's CUDA
# files over a table of calls that works in plain memory (support/cuda_host.h).
#
#   tests/unit/kernels/test_<x>.c        against kernels_host
#   tests/unit/engine/test_cuda_<x>.c    against engine_on_host: the engine with its CUDA backend and everything below
#
# CUDA's headers are the toolkit's, else those out of NVIDIA's wheels, fetched once into build/cuda-headers.
if(SLUICE_FUZZ)
  message(STATUS "CUDA host tests: no, this build is for the fuzz targets")
  return()
endif()

if(NOT CMAKE_CXX_COMPILER AND CMAKE_C_COMPILER_ID MATCHES "Clang")
  set(CMAKE_CXX_COMPILER clang++) # sanitizers of two makers do not go together
endif()
foreach(kind RELEASE DEBUG)
  set(CMAKE_CXX_FLAGS_${kind} ${CMAKE_C_FLAGS_${kind}})
endforeach()
enable_language(CXX)

if(NOT SLUICE_CUDA_INCLUDE)
  set(headers ${CMAKE_SOURCE_DIR}/build/cuda-headers)
  execute_process(COMMAND ${SLUICE_PYTHON} -B ${CMAKE_CURRENT_SOURCE_DIR}/support/cuda_headers.py ${headers}
    RESULT_VARIABLE failed ERROR_VARIABLE why)
  if(failed)
    # The rest can be built and tested, but not without a word: this test then fails.
    message(WARNING "No CUDA headers, so the tests of the kernels and of the CUDA engine are left out: ${why}")
    add_test(NAME unit.kernels.headers
      COMMAND sh -c "echo 'CUDA headers could not be had when this was configured (tests/support/cuda_headers.py)'; false")
    set_tests_properties(unit.kernels.headers PROPERTIES LABELS "unit;kernels;cuda")
    return()
  endif()
  set(SLUICE_CUDA_INCLUDE ${headers})
endif()
if(NOT SLUICE_CUDA_BUILD)
  sluice_cuda_headers(${SLUICE_CUDA_INCLUDE})
endif()

# The kernels as C++. Device code reads a matrix through wider types than it was written with.
add_library(kernels_host STATIC ${SLUICE_KERNEL_SOURCES} ${SLUICE_KERNEL_HOST_SOURCES}
  support/simt.cc support/simt_race.cc)
set(kernels ${SLUICE_KERNEL_SOURCES} support/simt_mistakes.cu support/ptx_probe.cu support/wgmma_probe.cu)
set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX)
if(NOT SLUICE_SANITIZE) # every load and store of a lane is seen by the shim, in the place of the sanitizer
  set_source_files_properties(${kernels} PROPERTIES COMPILE_OPTIONS -fsanitize=thread)
  target_compile_definitions(kernels_host PRIVATE SIMT_WATCHES)
endif()
target_include_directories(kernels_host PUBLIC support)
target_link_libraries(kernels_host PUBLIC cuda_headers Threads::Threads)
add_library(simt_mistakes STATIC support/simt_mistakes.cu)
target_link_libraries(simt_mistakes PUBLIC kernels_host)
add_library(ptx_probe STATIC support/ptx_probe.cu support/wgmma_probe.cu)
target_link_libraries(ptx_probe PUBLIC kernels_host)
foreach(target kernels_host simt_mistakes ptx_probe)
  set_target_properties(${target} PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE -g1 -fno-strict-aliasing -Wno-unknown-pragmas)
endforeach()

add_library(kernel_device_host STATIC support/kernel_device_host.c support/kernel_matrix.c
  support/kernel_numbers.c)
target_link_libraries(kernel_device_host PUBLIC kernels_host)

# The engine as it is in a program with CUDA, on top of the host's table and kernels.
file(GLOB cuda_host CONFIGURE_DEPENDS support/cuda_host*.c)
if(SLUICE_CUDA_SOURCES AND cuda_host)
  add_library(engine_on_host STATIC ${cuda_host} support/kernel_numbers.c $<TARGET_OBJECTS:engine_cuda>
    $<FILTER:$<TARGET_OBJECTS:engine>,EXCLUDE,/backend\\.c\\.o$> $<TARGET_OBJECTS:engine_table>)
  target_include_directories(engine_on_host PUBLIC ${CMAKE_SOURCE_DIR}/src support)
  target_link_libraries(engine_on_host PUBLIC model kernels_host cuda_headers m Threads::Threads)
endif()

# sluice_host_test(LAYER FILE LIBRARIES...)
function(sluice_host_test layer file)
  get_filename_component(stem ${file} NAME_WE)
  string(REPLACE "test_" "" subject ${stem})
  set(target test_${layer}_${subject})
  add_executable(${target} ${file})
  target_link_libraries(${target} PRIVATE ${ARGN} harness)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests/support)
  target_compile_definitions(${target} PRIVATE TEST_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  sluice_register_file(${target} ${file} "unit.${layer}.${subject}" "unit;${layer};cuda")
endfunction()

file(GLOB files CONFIGURE_DEPENDS unit/kernels/test_*.c)
foreach(file ${files})
  sluice_host_test(kernels ${file} kernel_device_host)
endforeach()
if(NOT SLUICE_SANITIZE) # it looks at code for a GPU, whatever this build is for
  add_test(NAME unit.kernels.memory_access COMMAND ${SLUICE_PYTHON} -B
    ${CMAKE_CURRENT_SOURCE_DIR}/unit/kernels/memory_access.py ${SLUICE_KERNEL_PTX} COMMAND_EXPAND_LISTS)
  set_tests_properties(unit.kernels.memory_access PROPERTIES LABELS "unit;kernels;cuda" SKIP_RETURN_CODE 77 TIMEOUT 600)
endif()
target_link_libraries(test_kernels_simt PRIVATE simt_mistakes)
target_link_libraries(test_kernels_ptx PRIVATE ptx_probe)
target_link_libraries(test_kernels_wgmma PRIVATE ptx_probe)
file(GLOB files CONFIGURE_DEPENDS unit/engine/test_cuda_*.c)
foreach(file ${files})
  sluice_host_test(engine ${file} $<LINK_LIBRARY:WHOLE_ARCHIVE,engine_on_host> model_builder engine_support)
endforeach()

# The shipped commands with two GPUs in plain memory, for the fault tests. Not under tsan, where a batch takes a second
# and more: what their threads share is tested there by unit.compute.compute.
if(NOT SLUICE_SANITIZE STREQUAL "thread")
  get_target_property(cli_sources sluice SOURCES)
  add_executable(sluice_on_gpus ${cli_sources} support/gpu_daemon.c)
  target_link_libraries(sluice_on_gpus PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,engine_on_host> ${below_cli} Threads::Threads)
  target_compile_definitions(sluice_on_gpus PRIVATE $<TARGET_PROPERTY:sluice,COMPILE_DEFINITIONS>)
  target_include_directories(sluice_on_gpus PRIVATE ${CMAKE_SOURCE_DIR}/src)
endif()

# The shipped commands beside a GPU that only takes time, for tools/bench/host_cost.py.
if(SLUICE_CUDA_SOURCES AND NOT SLUICE_SANITIZE)
  get_target_property(cli_sources sluice SOURCES)
  add_executable(sluice_paced ${cli_sources} support/cuda_paced.c $<TARGET_OBJECTS:engine_cuda>
    $<FILTER:$<TARGET_OBJECTS:engine>,EXCLUDE,/backend\\.c\\.o$> $<TARGET_OBJECTS:engine_table>)
  target_link_libraries(sluice_paced PRIVATE ${below_cli} model kernels_host cuda_headers m Threads::Threads)
  target_compile_definitions(sluice_paced PRIVATE $<TARGET_PROPERTY:sluice,COMPILE_DEFINITIONS>)
  target_include_directories(sluice_paced PRIVATE ${CMAKE_SOURCE_DIR}/src)
  add_test(NAME unit.engine.cuda_paced COMMAND sluice_paced bench engine --model
    ${CMAKE_SOURCE_DIR}/config/models/sluice-mini-en --backend cuda --tokens 16 --rounds 1 --round-ms 20)
  set_tests_properties(unit.engine.cuda_paced PROPERTIES LABELS "unit;engine;cuda")
endif()
