/* Reads arrays of texts, writes the texts: the side of the comparison with Python's json that is ours.
 *
 * usage: read_inputs MOST_TEXTS MOST_BYTES < arrays > texts
 * Each array is a native uint32 length and its bytes. For each: problem and count as native uint32; then, when there is
 * no problem, each text as a length and its bytes. */
#include <stdio.h>
#include <stdlib.h>

#include "schedule/inputs.h"

static void write_number(uint32_t number)
{
    fwrite(&number, sizeof number, 1, stdout);
}

static int write_texts(const char *json, size_t length, const struct inputs *inputs)
{
    char *copy = malloc(inputs->bytes);
    struct row *rows = calloc(inputs->count, sizeof *rows);
    if (copy == NULL || rows == NULL) { return 1; }
    inputs_decode(json, length, copy, rows);
    for (uint32_t i = 0; i < inputs->count; i++) {
        write_number(rows[i].text_bytes);
        fwrite(rows[i].text, 1, rows[i].text_bytes, stdout);
    }
    free(rows);
    free(copy);
    return 0;
}

int main(int argc, char **argv)
{
    uint32_t length;
    if (argc != 3) { return 64; }
    uint32_t most_texts = (uint32_t)strtoul(argv[1], NULL, 10);
    size_t most_bytes = strtoul(argv[2], NULL, 10);
    while (fread(&length, sizeof length, 1, stdin) == 1) {
        char *json = malloc(length + (length == 0)); /* a sanitizer sees one byte too many */
        if (json == NULL || fread(json, 1, length, stdin) != length) { return 1; }
        struct inputs inputs = inputs_measure(json, length, most_texts, most_bytes);
        write_number((uint32_t)inputs.problem);
        write_number(inputs.count);
        if (inputs.problem == INPUTS_OK && write_texts(json, length, &inputs) != 0) { return 1; }
        free(json);
    }
    return ferror(stdin) || fflush(stdout) != 0;
}
