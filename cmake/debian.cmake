# What Debian's policy asks for beyond our files, once they are installed for the package.
set(doc ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share/doc/sluice)
get_filename_component(source ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
execute_process(COMMAND git log -1 --format=%aD WORKING_DIRECTORY ${source} OUTPUT_VARIABLE date
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
file(WRITE ${doc}/changelog "sluice (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * Built from the source; its history is in git.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
execute_process(COMMAND gzip -9n ${doc}/changelog COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND gzip -9n ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share/man/man1/sluice.1 COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${doc}/LICENSE ${doc}/copyright)
