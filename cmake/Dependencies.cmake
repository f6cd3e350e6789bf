# The libraries that Sluice uses; `make deps` installs them on Debian 12.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(CJSON REQUIRED IMPORTED_TARGET libcjson)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(HIREDIS REQUIRED IMPORTED_TARGET hiredis)
pkg_check_modules(EVENT REQUIRED IMPORTED_TARGET libevent_core)
pkg_check_modules(EVENT_TLS REQUIRED IMPORTED_TARGET libevent_openssl)
# Its pkg-config file names libevent, too, which has all of libevent_core; linked first, it would replace that.
list(FILTER EVENT_TLS_LINK_LIBRARIES EXCLUDE REGEX "libevent\\.so$")
set_property(TARGET PkgConfig::EVENT_TLS PROPERTY INTERFACE_LINK_LIBRARIES ${EVENT_TLS_LINK_LIBRARIES})
pkg_check_modules(OPENSSL REQUIRED IMPORTED_TARGET openssl)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
