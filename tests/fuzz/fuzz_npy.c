/* Any bytes as the head of an .npy: refused with a message, or something that could be one. */
#include <stdlib.h>
#include <string.h>

#include "bulk/output/store.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct npy npy;
    struct err err = {0};
    char *copy = malloc(size > 0 ? size : 1); /* exactly as long, so that a byte too far is seen */
    memcpy(copy, data, size);
    if (npy_read(copy, size, "fuzz.npy", &npy, &err) == STATUS_OK) {
        FUZZ_CHECK(npy.data <= size && npy.data <= NPY_HEADER_MOST && npy.dimensions <= NPY_DIMENSIONS_MAX);
        FUZZ_CHECK(memchr(npy.type, '\0', sizeof npy.type) != NULL);
        for (size_t less = 0; less < npy.data; less++) { /* a head that ends early is never taken for a whole one */
            struct npy other;
            FUZZ_CHECK(npy_read(copy, less, "fuzz.npy", &other, &err) == STATUS_BAD_INPUT);
        }
    } else {
        FUZZ_CHECK(err.status == STATUS_BAD_INPUT && strstr(err.message, "fuzz.npy") != NULL);
    }
    free(copy);
    return 0;
}
