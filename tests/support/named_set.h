/* For files that tests/cmake/Engine.cmake runs once more with the names of instruction sets: if the set that SLUICE_ISA
 * names does not run here, the cases are skipped, because they would use another set, which has a run of its own. */
#ifndef TESTS_NAMED_SET_H
#define TESTS_NAMED_SET_H

#include <stdlib.h>

#include "engine/cpu/isa.h"
#include "harness.h"

bool tests_can_run(void)
{
    const char *named = getenv("SLUICE_ISA");
    return named == NULL || strcmp(named, instruction_set_pick()->name) == 0;
}

#endif
