# Rewrites the paths in installed pages, comments and alerts, from those of the source to those below PREFIX:
#   cmake -DROOT=DESTDIR -DPREFIX=/usr -P paths.cmake
# docs/architecture.md describes the source and keeps its paths; config/kubernetes has paths of the image.
set(share ${PREFIX}/share/sluice)
set(doc ${PREFIX}/share/doc/sluice)

file(GLOB_RECURSE pages ${ROOT}${doc}/*.md)
file(GLOB cards ${ROOT}${share}/models/*/README.md)
foreach(page IN LISTS pages cards)
  file(READ ${page} text)
  string(REGEX REPLACE "\\]\\((\\.\\./)?config/" "](${share}/" text "${text}")
  string(REGEX REPLACE "\\[([^]]*)\\]\\((\\.\\./)?(src|tests|docker-compose)[^)]*\\)" "\\1" text "${text}") # these are not installed
  if(NOT page MATCHES "/architecture.md$")
    string(REGEX REPLACE "([^/a-z])config/([a-z])" "\\1${share}/\\2" text "${text}")
    string(REPLACE "build/release/sluice" "sluice" text "${text}")
  endif()
  string(REPLACE "/usr/local/share/" "${PREFIX}/share/" text "${text}")
  file(WRITE ${page} "${text}")
endforeach()

file(GLOB others ${ROOT}${share}/*.json ${ROOT}${share}/*.conf ${ROOT}${share}/*.sh ${ROOT}${share}/monitoring/*.yml)
foreach(file IN LISTS others)
  file(READ ${file} text)
  string(REPLACE "/usr/local/share/" "${PREFIX}/share/" text "${text}")
  string(REGEX REPLACE "([^/a-z])docs/([a-z-]+[.]md)" "\\1${doc}/docs/\\2" text "${text}")
  string(REGEX REPLACE "([^/a-z])config/([a-z])" "\\1${share}/\\2" text "${text}")
  file(WRITE ${file} "${text}")
endforeach()
