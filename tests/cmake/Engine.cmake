# The encoder's tests once more with the processor's newest instructions hidden, so that every set of kernels is tested
# on any machine that has them: oneDNN reads the bound, and src/engine follows oneDNN.
foreach(isa SSE41 AVX2 AVX2_VNNI AVX512_CORE AVX512_CORE_BF16)
  add_test(NAME unit.engine.encoder_up_to_${isa} COMMAND test_engine_encoder)
  set_tests_properties(unit.engine.encoder_up_to_${isa} PROPERTIES LABELS "unit;engine" TIMEOUT 900 COST 8
    ENVIRONMENT DNNL_MAX_CPU_ISA=${isa})
endforeach()
