# Embeds lua/*.lua into the redis layer: one C file with a byte array for each script, NAME.lua as SCRIPT_NAME of enum
# script (src/redis/scripts.h). Included from the top level, it adds the rule; run as a script (cmake -P), it writes the file.
#
# A line `-- include lib/NAME.lua` in a script is replaced by that file without its comments, on one line, so that line
# numbers in Redis' messages are those in lua/. (tests/support/scripts.py does the same, and a test compares the two.)
if(CMAKE_SCRIPT_MODE_FILE)
  include(${CMAKE_CURRENT_LIST_DIR}/Embed.cmake)
  set(arrays "")
  set(table "")
  string(REPLACE "," ";" scripts ${SCRIPTS})
  string(REPLACE "," ";" pieces ${PIECES})
  foreach(piece ${pieces})
    file(READ ${LUA_DIR}/lib/${piece}.lua text)
    string(REGEX REPLACE "(^|\n) *--[^\n]*" "" text "${text}")
    string(REGEX REPLACE "\n+ *" " " text "${text}")
    string(STRIP "${text}" text)
    string(HEX "${text}" ${piece}_bytes)
    string(HEX "-- include lib/${piece}.lua" ${piece}_line)
  endforeach()
  string(HEX "-- include" include)
  foreach(name ${scripts})
    file(READ ${LUA_DIR}/${name}.lua bytes HEX)
    foreach(piece ${pieces})
      string(REPLACE ${${piece}_line} "${${piece}_bytes}" bytes "${bytes}")
    endforeach()
    if(bytes MATCHES ${include})
      message(FATAL_ERROR "lua/${name}.lua includes what is not in lua/lib")
    endif()
    sluice_c_array(definition ${name} "${bytes}")
    string(APPEND arrays "${definition}")
    string(TOUPPER ${name} member)
    string(APPEND table "    [SCRIPT_${member}] = {\"${name}\", (const char *)${name}, sizeof ${name} - 1},\n")
  endforeach()
  list(LENGTH scripts count)
  file(WRITE ${OUTPUT} "/* Generated from lua/ by cmake/Scripts.cmake. */\n#include \"redis/scripts.h\"\n\n${arrays}\n"
    "const struct script_source script_sources[SCRIPT_COUNT] = {\n${table}};\n"
    "_Static_assert(SCRIPT_COUNT == ${count}, \"lua/ has a script for each member of enum script\");\n")
  return()
endif()

# The names are arguments, so that the rule runs again when a file is added or removed.
set(SLUICE_SCRIPTS_C ${CMAKE_BINARY_DIR}/generated/scripts_embedded.c)
file(GLOB SLUICE_SCRIPTS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/lua/*.lua)
file(GLOB SLUICE_SCRIPT_PIECES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/lua/lib/*.lua)
set(SLUICE_SCRIPT_FILES ${SLUICE_SCRIPTS} ${SLUICE_SCRIPT_PIECES})
list(TRANSFORM SLUICE_SCRIPTS REPLACE ".*/(.+)[.]lua" "\\1")
list(TRANSFORM SLUICE_SCRIPT_PIECES REPLACE ".*/(.+)[.]lua" "\\1")
list(JOIN SLUICE_SCRIPTS "," SLUICE_SCRIPTS)
list(JOIN SLUICE_SCRIPT_PIECES "," SLUICE_SCRIPT_PIECES)
add_custom_command(OUTPUT ${SLUICE_SCRIPTS_C}
  COMMAND ${CMAKE_COMMAND} -D LUA_DIR=${CMAKE_SOURCE_DIR}/lua -D SCRIPTS=${SLUICE_SCRIPTS}
          -D PIECES=${SLUICE_SCRIPT_PIECES} -D OUTPUT=${SLUICE_SCRIPTS_C} -P ${CMAKE_SOURCE_DIR}/cmake/Scripts.cmake
  DEPENDS ${SLUICE_SCRIPT_FILES} ${CMAKE_SOURCE_DIR}/cmake/Scripts.cmake ${CMAKE_SOURCE_DIR}/cmake/Embed.cmake
  COMMENT "Embedding lua/")
target_sources(redis PRIVATE ${SLUICE_SCRIPTS_C})
