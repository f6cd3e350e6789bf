# The CPU kernels' vector code: one body, compiled once per instruction set and chosen at run time (never -march=native,
# never -ffast-math). On other processors than x86-64 only the generic build of it exists.
set(kernels ${CMAKE_SOURCE_DIR}/src/engine/cpu/kernels)
set(int8 ${CMAKE_SOURCE_DIR}/src/engine/cpu/int8)
set_source_files_properties(${kernels}_generic.c ${int8}_generic.c PROPERTIES COMPILE_OPTIONS "-O3")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_definitions(engine PRIVATE SLUICE_X86)
  set_source_files_properties(${kernels}_avx2.c ${int8}_avx2.c PROPERTIES COMPILE_OPTIONS "-O3;-mavx2;-mfma")
  set_source_files_properties(${kernels}_avx512.c PROPERTIES
    COMPILE_OPTIONS "-O3;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mfma")
  set_source_files_properties(${kernels}_amx.c PROPERTIES
    COMPILE_OPTIONS "-O3;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mfma;-mavx512bf16;-mamx-tile;-mamx-bf16;-mamx-int8")
  set_source_files_properties(${int8}_vnni.c PROPERTIES
    COMPILE_OPTIONS "-O3;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mfma;-mavx512vnni")
  set_source_files_properties(${int8}_amx.c PROPERTIES
    COMPILE_OPTIONS "-O3;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mfma;-mavx512bf16;-mamx-tile;-mamx-int8")
endif()
