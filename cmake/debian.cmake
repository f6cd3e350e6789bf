# Adds the files that Debian's policy requires beyond ours, after these are installed for the package.
set(doc ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share/doc/sluice)
if(CPACK_SLUICE_COMMITTED)
  set(ENV{SOURCE_DATE_EPOCH} ${CPACK_SLUICE_COMMITTED})
endif()
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE ${doc}/changelog "sluice (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * Built from the source; its history is in git.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
execute_process(COMMAND gzip -9n ${doc}/changelog COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND gzip -9n ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share/man/man1/sluice.1 COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${doc}/LICENSE ${doc}/copyright)
file(READ ${doc}/README.md readme)
string(REPLACE "](LICENSE)" "](copyright)" readme "${readme}")
file(WRITE ${doc}/README.md "${readme}")
