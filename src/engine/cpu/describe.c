#include "engine/cpu/describe.h"

#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

/* Linux names the processor of an x86 in /proc/cpuinfo; elsewhere it may not. */
static void find_model(char *out, size_t size)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    snprintf(out, size, "unknown processor");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *name = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
        if (name == NULL)
            continue;
        name += 1 + strspn(name + 1, " \t");
        snprintf(out, size, "%.*s", (int)strcspn(name, "\n"), name);
        break;
    }
    if (file != NULL)
        fclose(file);
}

void cpu_describe(const char *kernels, char *out, size_t size)
{
    char model[80];
    find_model(model, sizeof model);
    snprintf(out, size, "%s, %s, %u threads", model, kernels, engine_default_threads());
}
