# sluice_integration_test(FILE): tests/integration/test_<x>.c, the io layer against real redis-server processes.
add_library(redis_server STATIC support/redis_server.c support/redis_fixture.c support/queue_desk.c)
target_include_directories(redis_server PUBLIC ${CMAKE_SOURCE_DIR}/tests/support ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(redis_server PUBLIC redis PkgConfig::CMOCKA)

function(sluice_integration_test file)
  get_filename_component(stem ${file} NAME_WE)
  string(REPLACE "test_" "" subject ${stem})
  set(target test_integration_${subject})
  add_executable(${target} ${file})
  target_link_libraries(${target} PRIVATE redis_server harness)
  target_compile_definitions(${target} PRIVATE TEST_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  sluice_register_file(${target} ${file} "integration.${subject}" "integration;redis")
endfunction()
