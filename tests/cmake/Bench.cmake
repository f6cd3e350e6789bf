# Programs of `make bench`: built with the tests, run by tests/bench/bench.sh only.
# sluice_bench(NAME LIBRARIES...): tests/bench/NAME.c
function(sluice_bench name)
  add_executable(${name} ${CMAKE_SOURCE_DIR}/tests/bench/${name}.c)
  target_link_libraries(${name} PRIVATE ${ARGN})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/support)
endfunction()
