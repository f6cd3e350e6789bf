# sluice_unit_test(LAYER FILE): builds FILE against LAYER and registers each of its cmocka cases with CTest.
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)

function(sluice_unit_test layer file)
  get_filename_component(stem ${file} NAME_WE)
  string(REPLACE "test_" "" subject ${stem})
  set(target test_${layer}_${subject})
  add_executable(${target} ${file})
  target_link_libraries(${target} PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,${layer}> model_builder engine_support
    PkgConfig::CMOCKA)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests/support)
  target_compile_definitions(${target} PRIVATE TEST_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  sluice_register_cases(${target} ${file} "unit.${layer}.${subject}" "unit;${layer}")
endfunction()

# sluice_register_cases(TARGET FILE PREFIX LABELS): one CTest entry for each `cmocka_unit_test...(name` in FILE. A line
# ` * ctest: LABEL...` in the comment at its head adds labels (`threads`: also worth running under tsan).
function(sluice_register_cases target file prefix labels)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} text)
  string(REGEX MATCHALL "cmocka_unit_test[a-z_]*\\([a-z0-9_]+" entries "${text}") # there may be several on a line
  if(text MATCHES "\n \\* ctest: ([a-z ]+)")
    string(REPLACE " " ";" more "${CMAKE_MATCH_1}")
    string(STRIP "${more}" more)
    list(APPEND labels ${more})
  endif()
  foreach(entry ${entries})
    string(REGEX REPLACE ".*\\(" "" case "${entry}")
    add_test(NAME ${prefix}.${case} COMMAND ${target} ${case})
    set_tests_properties(${prefix}.${case} PROPERTIES LABELS "${labels}" TIMEOUT 300)
  endforeach()
endfunction()
