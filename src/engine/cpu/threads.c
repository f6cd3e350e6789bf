/* How many compute threads this process may keep busy: its affinity mask, cut by the CPU quota of its control group
 * (version 2: cpu.max on the way up to the root; version 1: cpu.cfs_quota_us over cpu.cfs_period_us). */
#include "engine/cpu/threads.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned affinity_threads(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (unsigned)CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (unsigned)online : 1;
}

/* Reads the first line of directory/name into `line`; false when there is none. */
static bool read_line(const char *directory, const char *name, char *line, int size)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path)
        return false;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    bool found = fgets(line, size, file) != NULL;
    fclose(file);
    return found;
}

/* The quota of one group's directory in CPUs, or 0 where it sets none. */
static double group_quota(const char *directory)
{
    char line[128], period_line[128];
    double quota = 0, period = 0;
    if (read_line(directory, "cpu.max", line, sizeof line)) {
        if (sscanf(line, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0)
            return quota / period;
        return 0;
    }
    if (read_line(directory, "cpu.cfs_quota_us", line, sizeof line) &&
        read_line(directory, "cpu.cfs_period_us", period_line, sizeof period_line)) {
        quota = strtod(line, NULL);
        period = strtod(period_line, NULL);
        if (quota > 0 && period > 0)
            return quota / period;
    }
    return 0;
}

/* The least quota of a group and those above it, up to `root` itself. */
static double least_quota(const char *root, const char *group, double least)
{
    char directory[4096];
    if (snprintf(directory, sizeof directory, "%s%s", root, group) >= (int)sizeof directory)
        return least;
    size_t root_length = strlen(root);
    for (;;) {
        double quota = group_quota(directory);
        if (quota > 0 && (least == 0 || quota < least))
            least = quota;
        char *slash = strrchr(directory, '/');
        if (slash == NULL || (size_t)(slash - directory) < root_length)
            return least;
        *slash = '\0';
    }
}

static bool names_cpu(const char *controllers)
{
    size_t length = strlen(controllers);
    for (const char *at = controllers; at < controllers + length; at += strcspn(at, ",") + 1)
        if (strncmp(at, "cpu", 3) == 0 && (at[3] == ',' || at[3] == '\0'))
            return true;
    return false;
}

double threads_cgroup_quota(const char *proc_cgroup, const char *mount)
{
    char line[4096], v1[4096];
    double least = 0;
    FILE *file = fopen(proc_cgroup, "re");
    if (file == NULL)
        return 0;
    snprintf(v1, sizeof v1, "%s/cpu", mount);
    while (fgets(line, sizeof line, file) != NULL) { /* hierarchy:controllers:/group */
        char *controllers = strchr(line, ':');
        char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (group == NULL)
            continue;
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        controllers++;
        if (*controllers == '\0')
            least = least_quota(mount, group, least);
        else if (names_cpu(controllers))
            least = least_quota(v1, group, least);
    }
    fclose(file);
    return least;
}

unsigned engine_default_threads(void)
{
    unsigned threads = affinity_threads();
    double quota = threads_cgroup_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    if (quota > 0 && quota < threads)
        threads = quota < 1 ? 1 : (unsigned)quota;
    return threads;
}
