# sluice_python_file(FILE LABEL): the CTest entry LABEL.<file> for a unittest file; tests/support/cases.py runs its cases in
# one process, or those that are named to it by hand.
#
# A line `# ctest: LABEL...` in the file adds labels; `# ctest-processors: N` says how many cores its cases want;
# `# ctest-once` that no program of ours runs in them, so that builds with a sanitizer leave them out. `# ctest-cost: N`
# is about how many seconds it takes: the long ones are started first, or all others wait for them at the end.
# A mark anywhere else in a line is an error.
set(SLUICE_PYTHON /usr/bin/python3) # Debian's own, whose python3-redis is one of the clients under test

function(sluice_python_file file label)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  get_filename_component(folder ${file} DIRECTORY)
  get_filename_component(module ${file} NAME_WE)
  string(REPLACE "test_" "" subject ${module})
  set(labels ${label})
  set(processors 1)
  set(cost 0)
  file(STRINGS ${file} lines REGEX "ctest([-a-z]*:|-once)")
  foreach(line IN LISTS lines)
    if(line MATCHES "^# ctest: ([a-z ]+)$")
      string(REPLACE " " ";" more "${CMAKE_MATCH_1}")
      list(APPEND labels ${more})
    elseif(line MATCHES "^# ctest-processors: ([0-9]+)$")
      set(processors ${CMAKE_MATCH_1})
    elseif(line MATCHES "^# ctest-cost: ([0-9]+)$")
      set(cost ${CMAKE_MATCH_1})
    elseif(line STREQUAL "# ctest-once")
      if(SLUICE_SANITIZE)
        return()
      endif()
    else()
      message(FATAL_ERROR "${file}: not a mark of CTest at the beginning of a line: ${line}")
    endif()
  endforeach()
  add_test(NAME ${label}.${subject} WORKING_DIRECTORY ${folder}
    COMMAND ${SLUICE_PYTHON} -B -W ignore::ResourceWarning ${CMAKE_SOURCE_DIR}/tests/support/cases.py ${module})
  set_tests_properties(${label}.${subject} PROPERTIES LABELS "${labels}" TIMEOUT 1200 PROCESSORS ${processors} COST ${cost}
    ENVIRONMENT "SLUICE_BINARY=$<TARGET_FILE:sluice>;PYTHONPATH=${CMAKE_SOURCE_DIR}/tests/support;PYTHONUNBUFFERED=1")
endfunction()
