# sluice_layer(NAME USES...): the folder src/NAME as the static library NAME.
#
# The files are globbed: a folder is a layer, and all files in it and its subfolders belong to it. A layer that does not
# exist yet is an interface library, so that the order of the layers is stated here once.
function(sluice_layer name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.c ${CMAKE_SOURCE_DIR}/src/${name}/*/*.c
    ${CMAKE_SOURCE_DIR}/src/${name}/*/*/*.c)
  if(name STREQUAL "engine")
    list(REMOVE_ITEM sources ${SLUICE_CUDA_SOURCES} ${SLUICE_CUDA_RUNTIME}) # see Cuda.cmake
  endif()
  if(name STREQUAL "cli")
    add_executable(sluice ${sources})
    target_link_libraries(sluice PRIVATE ${ARGN} Threads::Threads)
    target_include_directories(sluice PRIVATE ${CMAKE_SOURCE_DIR}/src)
    set_target_properties(sluice PROPERTIES LINKER_LANGUAGE C) # even if kernels are linked
    # The source folder, in which a program run from its build folder finds the shipped model.
    target_compile_definitions(sluice PRIVATE SLUICE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    return()
  endif()
  if(NOT sources)
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE ${ARGN})
    return()
  endif()
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${name} PUBLIC ${ARGN} Threads::Threads)
endfunction()
