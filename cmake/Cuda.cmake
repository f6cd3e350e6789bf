# The CUDA engine: kernels/*.cu by nvcc, and the C files of src/engine/cuda that drive them.
#
# Only executables that link `engine_with_cuda` have it, such as the daemon: the library `engine` has only the CPU's, so
# that the many test programs stay small. Only the CUDA runtime is linked, statically; cuBLASLt is loaded when the
# engine is opened, so that the same program runs on a machine without an NVIDIA driver.
#
# Sets SLUICE_CUDA_BUILD (whether to build it) and SLUICE_CUDA_INCLUDE (CUDA's headers, which the host tests need too).
set(SLUICE_CUDA AUTO CACHE STRING "Build the CUDA engine: ON, OFF, or AUTO: where nvcc is found")
set_property(CACHE SLUICE_CUDA PROPERTY STRINGS AUTO ON OFF)

find_program(SLUICE_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin
  DOC "NVIDIA's compiler")
find_program(SLUICE_GXX g++ DOC "What nvcc compiles host code with")

# nvcc, which may be a script or a link, says itself where the toolkit is.
if(SLUICE_NVCC)
  execute_process(COMMAND ${SLUICE_NVCC} -v sluice OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(said MATCHES "#[$] TOP=([^\n]+)")
    get_filename_component(include ${CMAKE_MATCH_1}/include ABSOLUTE)
    set(SLUICE_CUDA_TOOLKIT_INCLUDE ${include}) # even if cuBLASLt's headers are elsewhere
    if(EXISTS ${include}/cuda_runtime_api.h AND EXISTS ${include}/cublasLt.h)
      set(SLUICE_CUDA_INCLUDE ${include})
    endif()
  endif()
endif()

set(SLUICE_CUDA_BUILD OFF)
if(SLUICE_CUDA AND SLUICE_CUDA_INCLUDE AND SLUICE_GXX)
  set(SLUICE_CUDA_BUILD ON)
  if(SLUICE_CUDA STREQUAL "AUTO" AND (SLUICE_SANITIZE OR SLUICE_FUZZ))
    set(SLUICE_CUDA_BUILD OFF) # the headers are for the host tests
  endif()
elseif(SLUICE_CUDA AND NOT SLUICE_CUDA STREQUAL "AUTO")
  message(FATAL_ERROR "SLUICE_CUDA=ON needs g++ and NVIDIA's toolkit with cuBLASLt's headers: put nvcc on the PATH, or "
    "set SLUICE_NVCC (now: ${SLUICE_NVCC})")
endif()

# The sources that need CUDA are removed from their layer.
file(GLOB SLUICE_CUDA_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/engine/cuda/*.c)
set(SLUICE_CUDA_RUNTIME ${CMAKE_SOURCE_DIR}/src/engine/cuda/runtime.c) # needs more than CUDA's headers
list(REMOVE_ITEM SLUICE_CUDA_SOURCES ${SLUICE_CUDA_RUNTIME})
file(GLOB SLUICE_KERNEL_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/*.cu)
file(GLOB SLUICE_KERNEL_HOST_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/*.c)

# The headers that kernels.h and cuda/api.h need, for C files.
add_library(cuda_headers INTERFACE)

# The backend table with CUDA's row, and the C files that it uses, for the daemon and for the host tests.
add_library(engine_table OBJECT EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/src/engine/backend.c)
target_compile_definitions(engine_table PRIVATE SLUICE_CUDA)
target_link_libraries(engine_table PRIVATE model)
function(sluice_cuda_headers include)
  target_include_directories(cuda_headers SYSTEM INTERFACE ${include} ${ARGN})
  target_include_directories(cuda_headers INTERFACE ${CMAKE_SOURCE_DIR})
  add_library(engine_cuda STATIC EXCLUDE_FROM_ALL ${SLUICE_CUDA_SOURCES} ${SLUICE_KERNEL_HOST_SOURCES})
  target_link_libraries(engine_cuda PUBLIC model cuda_headers m)
endfunction()

# An executable that links this in addition to `engine` has the CUDA engine, if it is built.
add_library(engine_with_cuda INTERFACE)
if(NOT SLUICE_CUDA_BUILD)
  message(STATUS "CUDA engine: no (SLUICE_CUDA=${SLUICE_CUDA}, nvcc: ${SLUICE_NVCC})")
  return()
endif()

set(CMAKE_CUDA_COMPILER ${SLUICE_NVCC})
if(NOT CMAKE_CUDA_HOST_COMPILER)
  set(CMAKE_CUDA_HOST_COMPILER ${SLUICE_GXX})
endif()
# PTX is made for two generations, the A100's (with code for its three kinds of chips) and the H100's; newer GPUs
# compile the latter when they load it.
set(SLUICE_CUDA_ARCHITECTURES "" CACHE STRING
  "Build the kernels for these alone, as in CMAKE_CUDA_ARCHITECTURES; empty: for all that Sluice runs on")
set(SLUICE_CUDA_CODE "--generate-code=arch=compute_80,code=[sm_80,sm_86,sm_89]"
  "--generate-code=arch=compute_90,code=[sm_90,compute_90]")
enable_language(CUDA)
add_library(CUDA::nvToolsExt INTERFACE IMPORTED) # Debian 12's CMake 3.25.1 requires it, and CUDA 13 no longer has it
find_package(CUDAToolkit 12.4 REQUIRED)
message(STATUS "CUDA engine: yes (CUDA ${CUDAToolkit_VERSION})")
sluice_cuda_headers(${SLUICE_CUDA_INCLUDE} ${SLUICE_CUDA_TOOLKIT_INCLUDE})

# sluice_kernels(TARGET [HOPPER] SOURCES...): a library of kernels compiled by nvcc. HOPPER: their instructions exist on
# GPUs of compute capability 9.0 alone.
function(sluice_kernels target)
  cmake_parse_arguments(PARSE_ARGV 1 kernels HOPPER "" "")
  add_library(${target} STATIC ${kernels_UNPARSED_ARGUMENTS})
  set_target_properties(${target} PROPERTIES CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON)
  set(code ${SLUICE_CUDA_CODE})
  if(kernels_HOPPER)
    set(code "--generate-code=arch=compute_90a,code=sm_90a")
    set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES OFF)
  elseif(SLUICE_CUDA_ARCHITECTURES)
    set(code "")
    set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES "${SLUICE_CUDA_ARCHITECTURES}")
  else()
    set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES OFF)
  endif()
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${target} PRIVATE ${code} --threads=2 -Xcompiler=-Wall,-Wextra,-fno-exceptions,-fno-rtti
    -Xcompiler=-fno-threadsafe-statics # for nvcc's own unused stubs, which would need libstdc++
    $<$<BOOL:${SLUICE_WERROR}>:-Werror=all-warnings>)
endfunction()
set(hopper ${SLUICE_KERNEL_SOURCES})
list(FILTER hopper INCLUDE REGEX "_wgmma\\.cu$")
set(others ${SLUICE_KERNEL_SOURCES})
list(REMOVE_ITEM others ${hopper})
sluice_kernels(kernels ${others})
sluice_kernels(kernels_hopper HOPPER ${hopper})
target_link_libraries(kernels PUBLIC kernels_hopper)

# The code of kernels that memory bounds, for unit.kernels.memory_access to look at.
set(SLUICE_KERNEL_PTX)
if(SLUICE_TESTS)
  foreach(architecture 80 90)
    add_library(kernels_ptx_${architecture} OBJECT kernels/activate.cu kernels/norm.cu kernels/pool.cu kernels/rotate.cu)
    set_target_properties(kernels_ptx_${architecture} PROPERTIES CUDA_PTX_COMPILATION ON
      CUDA_ARCHITECTURES ${architecture}-virtual CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON)
    target_include_directories(kernels_ptx_${architecture} PRIVATE ${CMAKE_SOURCE_DIR})
    list(APPEND SLUICE_KERNEL_PTX $<TARGET_OBJECTS:kernels_ptx_${architecture}>)
  endforeach()
endif()

add_library(cuda_runtime STATIC EXCLUDE_FROM_ALL ${SLUICE_CUDA_RUNTIME})
target_compile_definitions(cuda_runtime PRIVATE SLUICE_CUDA_LIBRARY_DIR="${CUDAToolkit_LIBRARY_DIR}")
target_link_libraries(cuda_runtime PRIVATE base cuda_headers CUDA::cudart_static)

target_sources(engine_with_cuda INTERFACE $<TARGET_OBJECTS:engine_table>)
# Each library precedes those that it calls.
target_link_libraries(engine_with_cuda INTERFACE engine engine_cuda kernels cuda_runtime CUDA::cudart_static)
