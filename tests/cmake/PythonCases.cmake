# sluice_python_cases(FILE LABEL): one CTest entry for each `def test_x` of a unittest file, named LABEL.<file>.<x>.
#
# A line `# ctest: LABEL...` in the file adds labels; `# ctest-processors: N` says how many cores its cases want;
# `# ctest-once` that no program of ours runs in them, so that builds with a sanitizer leave them out. `# ctest-cost: N`
# before a case is about how many seconds it takes: the long ones are started first, or all others wait for them at the end.
# Each case runs by its full name, so that a name that matches nothing is an error of unittest and not a test that passed.
set(SLUICE_PYTHON /usr/bin/python3) # Debian's own, whose python3-redis is one of the clients under test

function(sluice_python_cases file label)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  get_filename_component(folder ${file} DIRECTORY)
  get_filename_component(module ${file} NAME_WE)
  string(REPLACE "test_" "" subject ${module})
  set(labels ${label})
  set(processors 1)
  set(cost 0)
  set(class "")
  set(found 0)
  file(STRINGS ${file} lines REGEX "^(class |    def test_| *# ctest)")
  foreach(line IN LISTS lines)
    if(line MATCHES "^class ([A-Za-z0-9_]+)")
      set(class ${CMAKE_MATCH_1})
    elseif(line MATCHES "^# ctest: (.*)")
      string(REPLACE " " ";" more "${CMAKE_MATCH_1}")
      list(APPEND labels ${more})
    elseif(line MATCHES "^# ctest-processors: ([0-9]+)")
      set(processors ${CMAKE_MATCH_1})
    elseif(line STREQUAL "# ctest-once" AND SLUICE_SANITIZE)
      return()
    elseif(line MATCHES "^    # ctest-cost: ([0-9]+)")
      set(cost ${CMAKE_MATCH_1})
    elseif(line MATCHES "^    def test_([A-Za-z0-9_]+)")
      set(name ${label}.${subject}.${CMAKE_MATCH_1})
      add_test(NAME ${name} COMMAND ${SLUICE_PYTHON} -B -W ignore::ResourceWarning -m unittest ${module}.${class}.test_${CMAKE_MATCH_1}
        WORKING_DIRECTORY ${folder})
      set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT 600 PROCESSORS ${processors} COST ${cost}
        ENVIRONMENT "SLUICE_BINARY=$<TARGET_FILE:sluice>;PYTHONPATH=${CMAKE_SOURCE_DIR}/tests/support;PYTHONUNBUFFERED=1")
      math(EXPR found "${found} + 1")
      set(cost 0)
    endif()
  endforeach()
  if(found EQUAL 0)
    message(FATAL_ERROR "${file} has no test cases")
  endif()
endfunction()
