# Embeds lua/*.lua into the io layer: one C file with a byte array for each script, in the order of enum script
# (src/redis/scripts.h). Included from the top, it adds the rule; run as a script (cmake -P), it writes the file.
#
# A line `-- include lib/NAME.lua` in a script stands for what is in that file, without its comments and on one line: so a
# line number that Redis names is the one in lua/. (tests/support/scripts.py does the same, and a test compares the two.)
set(SLUICE_SCRIPTS settle defer promote reclaim release charge join renew cancel pulse shed fair sweep requeue control
  mend group)
set(SLUICE_SCRIPT_PIECES names trouble entries later)

if(CMAKE_SCRIPT_MODE_FILE)
  set(arrays "")
  set(table "")
  foreach(piece ${SLUICE_SCRIPT_PIECES})
    file(READ ${LUA_DIR}/lib/${piece}.lua text)
    string(REGEX REPLACE "(^|\n) *--[^\n]*" "" text "${text}")
    string(REGEX REPLACE "\n+ *" " " text "${text}")
    string(STRIP "${text}" text)
    string(HEX "${text}" ${piece}_bytes)
    string(HEX "-- include lib/${piece}.lua" ${piece}_line)
  endforeach()
  string(HEX "-- include" include)
  foreach(name ${SLUICE_SCRIPTS})
    file(READ ${LUA_DIR}/${name}.lua bytes HEX)
    foreach(piece ${SLUICE_SCRIPT_PIECES})
      string(REPLACE ${${piece}_line} "${${piece}_bytes}" bytes "${bytes}")
    endforeach()
    if(bytes MATCHES ${include})
      message(FATAL_ERROR "lua/${name}.lua includes what is not in lua/lib")
    endif()
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
    string(APPEND arrays "static const unsigned char ${name}[] = {\n${bytes}\n0};\n")
    string(APPEND table "    {\"${name}\", (const char *)${name}, sizeof ${name} - 1},\n")
  endforeach()
  file(WRITE ${OUTPUT} "/* Generated from lua/ by cmake/Scripts.cmake. */\n#include \"redis/scripts.h\"\n\n${arrays}\n"
    "const struct script_source script_sources[SCRIPT_COUNT] = {\n${table}};\n")
  return()
endif()

set(SLUICE_SCRIPTS_C ${CMAKE_BINARY_DIR}/generated/scripts_embedded.c)
set(SLUICE_SCRIPT_FILES ${SLUICE_SCRIPTS})
list(TRANSFORM SLUICE_SCRIPT_PIECES PREPEND "lib/" OUTPUT_VARIABLE SLUICE_PIECE_FILES)
list(APPEND SLUICE_SCRIPT_FILES ${SLUICE_PIECE_FILES})
list(TRANSFORM SLUICE_SCRIPT_FILES REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/lua/\\1.lua")
add_custom_command(OUTPUT ${SLUICE_SCRIPTS_C}
  COMMAND ${CMAKE_COMMAND} -D LUA_DIR=${CMAKE_SOURCE_DIR}/lua -D OUTPUT=${SLUICE_SCRIPTS_C}
          -P ${CMAKE_SOURCE_DIR}/cmake/Scripts.cmake
  DEPENDS ${SLUICE_SCRIPT_FILES} ${CMAKE_SOURCE_DIR}/cmake/Scripts.cmake
  COMMENT "Embedding lua/")
target_sources(redis PRIVATE ${SLUICE_SCRIPTS_C})
