# sluice_fuzz_target(NAME LAYER SUPPORT...): tests/fuzz/NAME.c, which has LLVMFuzzerTestOneInput and uses LAYER and the
# libraries of tests/support.
#
# Always: the executable replay_NAME, and the test fuzz.NAME that feeds it the seeds in tests/fuzz/seeds/NAME.txt. With
# SLUICE_FUZZ (preset `fuzz`, clang): also the libFuzzer executable NAME. To look for new inputs:
#   cmake --preset fuzz && cmake --build --preset fuzz --target NAME
#   tests/fuzz/seeds.py unpack NAME build/seeds && mkdir -p build/found
#   build/fuzz/tests/NAME -max_total_time=300 build/found build/seeds
# and to keep one: tests/fuzz/seeds.py add NAME FILE
function(sluice_fuzz_target name layer)
  set(source ${CMAKE_SOURCE_DIR}/tests/fuzz/${name}.c)
  set(seeds ${CMAKE_SOURCE_DIR}/tests/fuzz/seeds/${name}.txt)
  add_executable(replay_${name} ${source} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay.c)
  target_link_libraries(replay_${name} PRIVATE ${ARGN} ${layer})
  target_include_directories(replay_${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz)
  add_test(NAME fuzz.${name} COMMAND replay_${name} ${seeds})
  set_tests_properties(fuzz.${name} PROPERTIES LABELS "fuzz;${layer}" TIMEOUT 300)
  if(SLUICE_FUZZ)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE ${ARGN} ${layer})
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  endif()
endfunction()
