# The encoder's tests once more with the processor's newest instructions hidden, so that every set of kernels is tested
# on any machine that has them. Not under sanitizers, where unit.engine.gemm and unit.engine.int8 run the products of all.
if(NOT SLUICE_SANITIZE)
  set(isas generic avx2 avx2_vnni avx512 avx512_vnni)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    set(isas generic neon)
  endif()
  if(CMAKE_CROSSCOMPILING) # plain C runs where it was compiled; an emulator is slow
    list(REMOVE_ITEM isas generic)
  endif()
  foreach(isa ${isas})
    add_test(NAME unit.engine.encoder_up_to_${isa} COMMAND test_engine_encoder)
    set_tests_properties(unit.engine.encoder_up_to_${isa} PROPERTIES LABELS "unit;engine" TIMEOUT ${SLUICE_TEST_LIMIT} COST 8
      ENVIRONMENT SLUICE_ISA=${isa})
  endforeach()
endif()
