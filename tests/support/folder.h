/* A folder for one test program: folder_make and folder_remove are its setup and teardown. */
#ifndef TESTS_FOLDER_H
#define TESTS_FOLDER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[64];

static inline int folder_make(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/sluice-test-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static inline int folder_remove(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

#endif
