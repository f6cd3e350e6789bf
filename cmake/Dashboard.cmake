# Embeds src/daemon/dashboard/ into the daemon layer, as the table of src/daemon/dashboard.h. Included from the top level,
# it adds the rule; run as a script (cmake -P), it writes the file.
set(SLUICE_PAGE dashboard.html dashboard.css dashboard.js)
if(CMAKE_SCRIPT_MODE_FILE)
  include(${CMAKE_CURRENT_LIST_DIR}/Embed.cmake)
  set(arrays "")
  set(table "")
  foreach(name ${SLUICE_PAGE})
    file(READ ${FOLDER}/${name} bytes HEX)
    string(MAKE_C_IDENTIFIER ${name} array)
    sluice_c_array(definition ${array} "${bytes}")
    string(APPEND arrays "${definition}")
    string(REGEX REPLACE "^dashboard.html$" "" path ${name})
    string(APPEND table "    {\"/${path}\", (const char *)${array}, sizeof ${array} - 1},\n")
  endforeach()
  file(WRITE ${OUTPUT} "/* Generated from src/daemon/dashboard/ by cmake/Dashboard.cmake. */\n#include \"daemon/dashboard.h\"\n\n${arrays}\n"
    "const struct dashboard_file dashboard_files[DASHBOARD_FILES] = {\n${table}};\n")
  return()
endif()

set(SLUICE_DASHBOARD_C ${CMAKE_BINARY_DIR}/generated/dashboard_embedded.c)
list(TRANSFORM SLUICE_PAGE PREPEND ${CMAKE_SOURCE_DIR}/src/daemon/dashboard/)
add_custom_command(OUTPUT ${SLUICE_DASHBOARD_C}
  COMMAND ${CMAKE_COMMAND} -D FOLDER=${CMAKE_SOURCE_DIR}/src/daemon/dashboard -D OUTPUT=${SLUICE_DASHBOARD_C}
          -P ${CMAKE_SOURCE_DIR}/cmake/Dashboard.cmake
  DEPENDS ${SLUICE_PAGE} ${CMAKE_SOURCE_DIR}/cmake/Dashboard.cmake ${CMAKE_SOURCE_DIR}/cmake/Embed.cmake
  COMMENT "Embedding src/daemon/dashboard/")
target_sources(daemon PRIVATE ${SLUICE_DASHBOARD_C})
