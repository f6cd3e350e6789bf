set(SLUICE_TEST_LIMIT 900) # seconds of a file's cases
if(CMAKE_CROSSCOMPILING) # an emulator is slow
  set(SLUICE_TEST_LIMIT 3600)
endif()

# sluice_unit_test(LAYER FILE): builds FILE against LAYER as one CTest entry.
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
add_library(harness STATIC support/harness.c)
target_include_directories(harness PUBLIC ${CMAKE_SOURCE_DIR}/tests/support)
target_link_libraries(harness PUBLIC PkgConfig::CMOCKA)

function(sluice_unit_test layer file)
  get_filename_component(stem ${file} NAME_WE)
  string(REPLACE "test_" "" subject ${stem})
  set(target test_${layer}_${subject})
  set(library ${layer})
  if(TARGET ${layer}_in_tests)
    set(library ${layer}_in_tests)
  endif()
  add_executable(${target} ${file})
  target_link_libraries(${target} PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,${library}> model_builder engine_support
    harness)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests/support)
  target_compile_definitions(${target} PRIVATE TEST_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  sluice_register_file(${target} ${file} "unit.${layer}.${subject}" "unit;${layer}")
endfunction()

# sluice_register_file(TARGET FILE NAME LABELS): one CTest entry for the cases of FILE; `TARGET CASE` runs one by hand. Lines
# in the comment at its head: ` * ctest: LABEL...` adds labels (`threads`: also worth running under tsan), and
# ` * ctest-cost: N` is about how many seconds it takes: the long ones are started first. A mark anywhere else in a line is an
# error, because nobody would notice that it is not read.
function(sluice_register_file target file name labels)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  set(cost 0)
  file(STRINGS ${file} lines REGEX "ctest[-a-z]*:")
  foreach(line IN LISTS lines)
    if(line MATCHES "^ \\* ctest: ([a-z ]+)(\\*/)?$")
      string(STRIP "${CMAKE_MATCH_1}" more)
      string(REPLACE " " ";" more "${more}")
      list(APPEND labels ${more})
    elseif(line MATCHES "^ \\* ctest-cost: ([0-9]+)( \\*/)?$")
      set(cost ${CMAKE_MATCH_1})
    else()
      message(FATAL_ERROR "${file}: not a mark of CTest at the beginning of a line: ${line}")
    endif()
  endforeach()
  add_test(NAME ${name} COMMAND ${target})
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${SLUICE_TEST_LIMIT} COST ${cost}
    SKIP_RETURN_CODE 77)
endfunction()
