/* Runs a fuzz target as a plain test: every seed of the files on the command line, in their order; no seed at all is an
 * error. tests/fuzz/seeds.py describes their format. Each input has memory of exactly its size, so that a read beyond
 * its end shows under ASan; the last name in the output is that of the seed that crashed. */
#include <stdbool.h>
#include <string.h>

#include "fuzz.h"

struct seed {
    char name[128];
    uint8_t *data;
    size_t size, room;
};

static void add(struct seed *seed, int byte, size_t count)
{
    if (seed->size + count > seed->room) {
        seed->room = 2 * (seed->size + count);
        seed->data = realloc(seed->data, seed->room);
        FUZZ_CHECK(seed->data != NULL);
    }
    memset(seed->data + seed->size, byte, count);
    seed->size += count;
}

/* Reads the escape after a backslash; returns its end, or NULL if it is unknown. */
static const char *unescape(struct seed *seed, const char *at)
{
    static const char names[] = "nrt\\", bytes[] = "\n\r\t\\";
    const char *known = *at != '\0' ? strchr(names, *at) : NULL;
    unsigned byte = 0;
    size_t count = 1;
    int length = 0;
    if (known != NULL) {
        add(seed, bytes[known - names], 1);
        return at + 1;
    }
    if (*at == '{') {
        sscanf(at, "{%zu}%2x%n", &count, &byte, &length);
    } else {
        sscanf(at, "x%2x%n", &byte, &length);
    }
    if (length == 0) { return NULL; }
    add(seed, (int)byte, count);
    return at + length;
}

static bool append(struct seed *seed, const char *line)
{
    while (line != NULL && *line != '\0' && *line != '\n') {
        if (*line == '\\') {
            line = unescape(seed, line + 1);
        } else {
            add(seed, (unsigned char)*line++, 1);
        }
    }
    return line != NULL;
}

static void run(struct seed *seed)
{
    printf("%s\n", seed->name);
    fflush(stdout);
    uint8_t *exact = malloc(seed->size + (seed->size == 0));
    FUZZ_CHECK(exact != NULL);
    if (seed->size > 0) { memcpy(exact, seed->data, seed->size); }
    LLVMFuzzerTestOneInput(exact, seed->size);
    free(exact);
    seed->size = 0;
}

/* Returns how many seeds there were, or -1 after an error. */
static int replay(const char *path)
{
    static char line[4096];
    struct seed seed = {0};
    int count = 0;
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return -1;
    }
    while (count >= 0 && fgets(line, sizeof line, file) != NULL) {
        bool head = strncmp(line, "== ", 3) == 0;
        if (head && count > 0) { run(&seed); }
        if (head && sscanf(line + 3, "%127s", seed.name) == 1) {
            count++;
        } else if (head || count == 0 || strchr(line, '\n') == NULL || !append(&seed, line)) {
            fprintf(stderr, "%s: seed %d: not a seed's text: %s", path, count, line);
            count = -1;
        }
    }
    if (count > 0) { run(&seed); }
    fclose(file);
    free(seed.data);
    return count;
}

int main(int argc, char **argv)
{
    int total = 0;
    for (int i = 1; i < argc; i++) {
        int count = replay(argv[i]);
        if (count < 0) { return 1; }
        total += count;
    }
    printf("%d inputs\n", total);
    return total > 0 ? 0 : 1;
}
