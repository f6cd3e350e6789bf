#include "bench/process.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double process_memory_mb(pid_t pid, const char *line)
{
    char path[64], text[256];
    double kib = NAN;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(text, sizeof text, file) != NULL)
        if (strncmp(text, line, strlen(line)) == 0 && text[strlen(line)] == ':' &&
            sscanf(text + strlen(line) + 1, "%lf", &kib) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return kib * 1024 / 1e6;
}
