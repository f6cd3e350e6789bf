# The engine as its tests link it. On an x86 its table of products has one row more: AMX's code on tiles in plain C
# (support/amx_emulated.c), which any machine with AVX-512's bf16 can run.
add_library(engine_in_tests STATIC ${CMAKE_SOURCE_DIR}/src/engine/cpu/isa.c
  $<FILTER:$<TARGET_OBJECTS:engine>,EXCLUDE,/cpu/isa\\.c\\.o$>)
target_link_libraries(engine_in_tests PUBLIC $<TARGET_PROPERTY:engine,LINK_LIBRARIES>)
target_include_directories(engine_in_tests PUBLIC ${CMAKE_SOURCE_DIR}/src)
target_compile_definitions(engine_in_tests PRIVATE $<TARGET_PROPERTY:engine,COMPILE_DEFINITIONS>)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_sources(engine_in_tests PRIVATE support/amx_emulated.c)
  target_compile_definitions(engine_in_tests PRIVATE SLUICE_AMX_EMULATED)
  get_source_file_property(flags ${CMAKE_SOURCE_DIR}/src/engine/cpu/isa/avx512_bf16.c DIRECTORY ${CMAKE_SOURCE_DIR}
    COMPILE_OPTIONS)
  list(REMOVE_ITEM flags -fno-sanitize=address) # here it is small enough for AddressSanitizer to watch
  set_source_files_properties(support/amx_emulated.c PROPERTIES COMPILE_OPTIONS "${flags}")
endif()

# The encoder's tests once more on each instruction set but the best, so that every set of kernels is tested on any machine
# that has it, and those of its helpers on each kind of product; elsewhere they are skipped. Not under sanitizers, where
# unit.engine.gemm and unit.engine.int8 run the products of all.
function(sluice_on_isas subject)
  foreach(isa ${ARGN})
    add_test(NAME unit.engine.${subject}_on_${isa} COMMAND test_engine_${subject})
    set_tests_properties(unit.engine.${subject}_on_${isa} PROPERTIES LABELS "unit;engine" TIMEOUT ${SLUICE_TEST_LIMIT} COST 8
      ENVIRONMENT SLUICE_ISA=${isa} SKIP_RETURN_CODE 77)
  endforeach()
endfunction()
if(NOT SLUICE_SANITIZE)
  set(isas generic avx2 avx2_vnni avx512 avx512_vnni amx_emulated)
  set(helped avx2 avx512_vnni amx_emulated)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    set(isas generic neon)
    set(helped)
  endif()
  if(CMAKE_CROSSCOMPILING) # plain C runs where it was compiled; an emulator is slow
    list(REMOVE_ITEM isas generic)
  endif()
  sluice_on_isas(encoder ${isas})
  sluice_on_isas(decoder ${isas})
  sluice_on_isas(int8_choice ${isas})
  sluice_on_isas(parallel_for ${helped})
endif()
