# sluice_fuzz_target(NAME LAYER SUPPORT...): tests/fuzz/NAME.c, which has LLVMFuzzerTestOneInput and uses LAYER and the
# libraries of tests/support.
#
# The test fuzz.NAME replays the seeds in tests/fuzz/seeds/NAME.txt. With SLUICE_FUZZ (preset `fuzz`, clang; `make fuzz`) it
# searches for new inputs with libFuzzer instead, as tests/fuzz/run.sh says, and the target `fuzzers` builds what that needs.
if(SLUICE_FUZZ)
  add_custom_target(fuzzers)
endif()

function(sluice_fuzz_target name layer)
  set(source ${CMAKE_SOURCE_DIR}/tests/fuzz/${name}.c)
  if(SLUICE_FUZZ)
    set(program ${name})
    add_executable(${program} ${source})
    target_link_options(${program} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzzers ${program})
    add_test(NAME fuzz.${name} COMMAND ${CMAKE_SOURCE_DIR}/tests/fuzz/run.sh ${name} $<TARGET_FILE:${program}>)
    set(limit 86400)
  else()
    set(program replay_${name})
    add_executable(${program} ${source} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay.c)
    add_test(NAME fuzz.${name} COMMAND ${program} ${CMAKE_SOURCE_DIR}/tests/fuzz/seeds/${name}.txt)
    set(limit 300)
  endif()
  target_link_libraries(${program} PRIVATE ${ARGN} ${layer})
  target_include_directories(${program} PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz)
  set_tests_properties(fuzz.${name} PROPERTIES LABELS "fuzz;${layer}" TIMEOUT ${limit})
endfunction()
