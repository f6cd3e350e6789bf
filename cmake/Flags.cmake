# Warnings, hardening and sanitizers for every target; nvcc's flags are in Cuda.cmake.
add_compile_definitions(_GNU_SOURCE)
set(warnings -Wall -Wextra -Wpedantic -Wshadow -Wpointer-arith -Wvla -Wwrite-strings -Wcast-qual -Wundef -Wformat=2
  -Wimplicit-fallthrough -Wno-missing-braces -Wno-missing-field-initializers)
set(hosts "$<COMPILE_LANGUAGE:C,CXX>")
add_compile_options(
  "$<${hosts}:${warnings};-fno-common;-fstack-protector-strong;-fstack-clash-protection>"
  "$<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes;-Wmissing-prototypes>")
# Marks the valid targets of indirect jumps; other processors have other means.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  add_compile_options("$<${hosts}:-fcf-protection=full>")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  add_compile_options("$<${hosts}:-mbranch-protection=standard>")
endif()
if(SLUICE_WERROR)
  add_compile_options("$<${hosts}:-Werror>")
endif()

if(SLUICE_SANITIZE)
  add_compile_options("$<${hosts}:-fsanitize=${SLUICE_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
  add_link_options(-fsanitize=${SLUICE_SANITIZE})
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
  add_compile_options("$<${hosts}:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3>")
endif()
if(SLUICE_FUZZ)
  add_compile_options("$<${hosts}:-fsanitize=fuzzer-no-link>")
endif()
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)
add_link_options(-Wl,-z,relro -Wl,-z,now -Wl,--as-needed)
