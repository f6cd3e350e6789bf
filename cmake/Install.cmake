# What `make install` puts where. The program finds its model beside itself: ../share/sluice/models/sluice-mini-en.
include(GNUInstallDirs)

install(TARGETS sluice RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES config/sluice.json DESTINATION ${CMAKE_INSTALL_DATADIR}/sluice)
install(PROGRAMS config/mend-aof.sh config/make-users.sh DESTINATION ${CMAKE_INSTALL_DATADIR}/sluice)
install(DIRECTORY config/acl DESTINATION ${CMAKE_INSTALL_DATADIR}/sluice)
install(DIRECTORY config/models DESTINATION ${CMAKE_INSTALL_DATADIR}/sluice OPTIONAL)
install(FILES LICENSE README.md SECURITY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL FILES_MATCHING PATTERN "*.md")
