/* Runs a fuzz target as a plain test: every file of the directories on the command line, and of none an error.
 * Each input lies in memory of its own size, so that a read behind its end shows under ASan. */
#include <dirent.h>
#include <string.h>

#include "fuzz.h"

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        return 1;
    }
    long size = ftell(file);
    uint8_t *data = size >= 0 ? malloc((size_t)size + (size == 0)) : NULL;
    rewind(file);
    int code = data == NULL || fread(data, 1, (size_t)size, file) != (size_t)size;
    fclose(file);
    if (code == 0)
        LLVMFuzzerTestOneInput(data, (size_t)size);
    else
        perror(path);
    free(data);
    return code;
}

/* Returns how many files there were, or -1 after an error. */
static int replay_directory(const char *directory)
{
    DIR *dir = opendir(directory);
    if (dir == NULL) {
        perror(directory);
        return -1;
    }
    int count = 0;
    for (struct dirent *entry; count >= 0 && (entry = readdir(dir)) != NULL;) {
        char path[4096];
        if (entry->d_name[0] == '.')
            continue;
        int length = snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        count = length < (int)sizeof path && replay_file(path) == 0 ? count + 1 : -1;
    }
    closedir(dir);
    return count;
}

int main(int argc, char **argv)
{
    int total = 0;
    for (int i = 1; i < argc; i++) {
        int count = replay_directory(argv[i]);
        if (count < 0)
            return 1;
        total += count;
    }
    printf("%d inputs\n", total);
    return total > 0 ? 0 : 1;
}
