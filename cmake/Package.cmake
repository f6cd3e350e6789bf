# `make deb`: a Debian package of the files that cmake/Install.cmake installs, under /usr. Version and date of its changelog
# are those of the last commit (cmake/Version.cmake).
set(CPACK_PACKAGE_VERSION ${SLUICE_VERSION})
set(CPACK_SLUICE_COMMITTED "${SLUICE_COMMITTED}")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME sluice)
set(CPACK_PACKAGE_CONTACT "The Sluice authors <maintainers@sluice.example>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "texts to vectors behind a Redis stream")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "Producers append texts to a Redis stream with XADD. The daemon reads
them in batches, computes their embeddings, scores or labels with a
transformer model on the CPU or on an NVIDIA GPU, and writes each result
to a key of its own. No request is lost, and each has one reply.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS redis-server)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(debian ${CMAKE_SOURCE_DIR}/config/debian)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${debian}/postinst ${debian}/prerm ${debian}/postrm)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/debian.cmake)
include(CPack)
