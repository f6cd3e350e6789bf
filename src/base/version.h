/* Which Sluice this is: the project's version and the commit, as in 0.1.0+git202611270920.72b7cff0.
 * Source: cmake/Version.cmake, which writes the definition at each build. */
#ifndef BASE_VERSION_H
#define BASE_VERSION_H

extern const char sluice_version[];

#endif
