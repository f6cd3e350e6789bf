/* Any bytes as a weight file: an error, or tensors that lie inside the data and cover it. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "model/safetensors.h"

static void check(const struct safetensors *file, size_t size)
{
    uint64_t at = 0;
    unsigned sum = 0;
    for (size_t i = 0; i < file->count; i++) {
        const struct safetensors_entry *entry = &file->entries[i];
        FUZZ_CHECK(entry->begin == at && entry->end >= at && entry->rank <= SAFETENSORS_MAX_RANK);
        for (; at < entry->end; at++) { sum += file->data[at]; }
    }
    FUZZ_CHECK(at == file->data_bytes && at < size && sum <= 255 * at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("weights", 0);
    FUZZ_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct safetensors file;
    struct err err = {0};
    enum status status = safetensors_open(path, "w.safetensors", &file, &err);
    if (status == STATUS_OK) {
        check(&file, size);
    } else {
        FUZZ_CHECK(err.status == status && strstr(err.message, "w.safetensors") != NULL);
    }
    safetensors_close(&file);
    close(fd);
    return 0;
}
