# The CPU kernels: src/engine/cpu/isa_*.c compile one body once per instruction set; which one runs is chosen at run
# time (never -march=native, never -ffast-math). On other processors than x86-64 only the generic one exists.
set(isa ${CMAKE_SOURCE_DIR}/src/engine/cpu/isa)
set_source_files_properties(${isa}_generic.c PROPERTIES COMPILE_OPTIONS "-O3")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_definitions(engine PRIVATE SLUICE_X86)
  set(avx512 "-O3;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mfma")
  set_source_files_properties(${isa}_avx2.c PROPERTIES COMPILE_OPTIONS "-O3;-mavx2;-mfma")
  set_source_files_properties(${isa}_avx2_vnni.c PROPERTIES COMPILE_OPTIONS "-O3;-mavx2;-mfma;-mavxvnni")
  set_source_files_properties(${isa}_avx512.c PROPERTIES COMPILE_OPTIONS "${avx512}")
  set_source_files_properties(${isa}_avx512_vnni.c PROPERTIES COMPILE_OPTIONS "${avx512};-mavx512vnni")
  set_source_files_properties(${isa}_avx512_bf16.c PROPERTIES COMPILE_OPTIONS "${avx512};-mavx512bf16")
  set_source_files_properties(${isa}_amx.c PROPERTIES
    COMPILE_OPTIONS "${avx512};-mavx512bf16;-mamx-tile;-mamx-bf16;-mamx-int8")
endif()
