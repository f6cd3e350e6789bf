# The files that `make install` installs, and their places under its prefix. The program finds its model relative to
# itself: ../share/sluice/models/sluice-mini-en.

install(TARGETS sluice RUNTIME DESTINATION bin)
install(FILES config/sluice.json config/redis.conf DESTINATION share/sluice)
install(PROGRAMS config/mend-aof.sh config/make-users.sh DESTINATION share/sluice)
install(DIRECTORY config/acl config/kubernetes config/monitoring DESTINATION share/sluice)
install(DIRECTORY config/models DESTINATION share/sluice OPTIONAL)
install(DIRECTORY tools/clients DESTINATION share/sluice OPTIONAL PATTERN __pycache__ EXCLUDE PATTERN ".*" EXCLUDE)
install(FILES LICENSE README.md SECURITY.md DESTINATION share/doc/sluice)
install(DIRECTORY docs DESTINATION share/doc/sluice OPTIONAL FILES_MATCHING PATTERN "*.md")
install(FILES config/completion.bash DESTINATION share/bash-completion/completions RENAME sluice)
install(FILES config/completion.zsh DESTINATION share/zsh/site-functions RENAME _sluice)

# Pages, comments and alerts name installed files, whose paths are known only now: --prefix may differ from the configured one.
install(CODE "set(script \"${CMAKE_SOURCE_DIR}/cmake/paths.cmake\")")
install(CODE [[
  execute_process(COMMAND "${CMAKE_COMMAND}" "-DROOT=$ENV{DESTDIR}" "-DPREFIX=${CMAKE_INSTALL_PREFIX}" -P "${script}" COMMAND_ERROR_IS_FATAL ANY)]])

# The manual page is made from --help. A program for another machine cannot be run for it.
install(CODE "set(script \"${CMAKE_SOURCE_DIR}/cmake/man.sh\")\nset(program \"$<TARGET_FILE:sluice>\")\nset(page \"${CMAKE_BINARY_DIR}/sluice.1\")")
install(CODE [[
  execute_process(COMMAND "${script}" "${program}" OUTPUT_FILE "${page}" RESULT_VARIABLE failed)
  if(failed)
    message(STATUS "No manual page: the program does not run here")
  else()
    file(INSTALL "${page}" DESTINATION "${CMAKE_INSTALL_PREFIX}/share/man/man1")
  endif()]])

# The units also name the installed program. sluice@NAME is the same daemon with its own configuration.
install(CODE "set(units \"${CMAKE_SOURCE_DIR}/config\")\nset(made \"${CMAKE_BINARY_DIR}\")")
install(CODE [[
  configure_file("${units}/sluice.service.in" "${made}/sluice.service" @ONLY)
  configure_file("${units}/sluice-gateway.service.in" "${made}/sluice-gateway.service" @ONLY)
  file(READ "${made}/sluice.service" text)
  string(REPLACE "/bin/sluice serve" "/bin/sluice serve --config /etc/sluice/%i.json" text "${text}")
  string(REPLACE "/etc/sluice/sluice.json" "/etc/sluice/%i.json" text "${text}")
  string(REPLACE "/etc/sluice/environment" "/etc/sluice/%i.environment" text "${text}")
  string(REPLACE "Description=Sluice:" "Description=Sluice %i:" text "${text}")
  string(REPLACE "systemctl edit sluice" "systemctl edit sluice@" text "${text}")
  file(WRITE "${made}/sluice@.service" "${text}")
  file(INSTALL "${made}/sluice.service" "${made}/sluice@.service" "${made}/sluice-gateway.service" DESTINATION "${CMAKE_INSTALL_PREFIX}/lib/systemd/system")]])
