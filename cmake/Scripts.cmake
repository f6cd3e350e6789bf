# Embeds lua/*.lua into the io layer: one C file with a byte array for each script, in the order of enum script
# (src/io/scripts.h). Included from the top, it adds the rule; run as a script (cmake -P), it writes the file.
set(SLUICE_SCRIPTS settle defer promote reclaim release charge join renew cancel track pulse shed fair sweep requeue)

if(CMAKE_SCRIPT_MODE_FILE)
  set(arrays "")
  set(table "")
  foreach(name ${SLUICE_SCRIPTS})
    file(READ ${LUA_DIR}/${name}.lua bytes HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
    string(APPEND arrays "static const unsigned char ${name}[] = {\n${bytes}\n0};\n")
    string(APPEND table "    {\"${name}\", (const char *)${name}, sizeof ${name} - 1},\n")
  endforeach()
  file(WRITE ${OUTPUT} "/* Generated from lua/ by cmake/Scripts.cmake. */\n#include \"io/scripts.h\"\n\n${arrays}\n"
    "const struct script_source script_sources[SCRIPT_COUNT] = {\n${table}};\n")
  return()
endif()

set(SLUICE_SCRIPTS_C ${CMAKE_BINARY_DIR}/generated/scripts_embedded.c)
list(TRANSFORM SLUICE_SCRIPTS REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/lua/\\1.lua" OUTPUT_VARIABLE SLUICE_SCRIPT_FILES)
add_custom_command(OUTPUT ${SLUICE_SCRIPTS_C}
  COMMAND ${CMAKE_COMMAND} -D LUA_DIR=${CMAKE_SOURCE_DIR}/lua -D OUTPUT=${SLUICE_SCRIPTS_C}
          -P ${CMAKE_SOURCE_DIR}/cmake/Scripts.cmake
  DEPENDS ${SLUICE_SCRIPT_FILES} ${CMAKE_SOURCE_DIR}/cmake/Scripts.cmake
  COMMENT "Embedding lua/")
target_sources(io PRIVATE ${SLUICE_SCRIPTS_C})
