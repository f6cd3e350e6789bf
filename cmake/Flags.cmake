# Warnings, hardening and sanitizers for every target.
add_compile_definitions(_GNU_SOURCE SLUICE_VERSION="${PROJECT_VERSION}")
add_compile_options(
  -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla
  -Wwrite-strings -Wcast-qual -Wundef -Wformat=2 -Wimplicit-fallthrough -Wno-missing-braces -Wno-missing-field-initializers
  -fno-common -fstack-protector-strong)
if(SLUICE_WERROR)
  add_compile_options(-Werror)
endif()

if(SLUICE_SANITIZE)
  add_compile_options(-fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SLUICE_SANITIZE})
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
  add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()
if(SLUICE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
add_link_options(-Wl,-z,relro -Wl,-z,now -Wl,--as-needed)
