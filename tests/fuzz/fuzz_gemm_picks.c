/* The file of matrix products' algorithms. The bytes are read as they are, and again as lines behind the right head and
 * before the right checksum, which no mutation would find: what is accepted must be written as it was read. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "engine/cuda_gemm_picks.h"
#include "fuzz.h"

static const struct cuda_device device = {.name = "a GPU", .capability = 90, .driver = 13000, .cublaslt = 130100};

static void read_text(const char *text, size_t length)
{
    struct gemm_picks picks = {0};
    struct buffer again = {0};
    struct err err = {0};
    char *copy = malloc(length + 1); /* so that a sanitizer sees a read beyond it */
    memcpy(copy, text, length);
    if (gemm_picks_parse(copy, length, &device, &picks, &err) != STATUS_OK) {
        FUZZ_CHECK(err.message[0] != '\0' && picks.count == 0 && picks.items == NULL);
    } else {
        gemm_picks_print(&picks, &device, &again);
        FUZZ_CHECK(buffer_ok(&again) && again.length == length && memcmp(again.data, text, length) == 0);
    }
    gemm_picks_free(&picks);
    buffer_free(&again);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buffer text = {0};
    read_text((const char *)data, size);
    buffer_format(&text, "sluice gemm 1\ndevice a GPU\ncapability 90\ndriver 13000\ncublaslt 130100\n");
    buffer_append(&text, data, size);
    buffer_format(&text, "checksum %016" PRIx64 "\n", (uint64_t)XXH64(text.data, text.length, 0));
    read_text(text.data, text.length);
    buffer_free(&text);
    return 0;
}
