/* Any bytes as a journal and as a manifest: records that are whole, or nothing. */
#include <stdlib.h>
#include <string.h>

#include "bulk/journal.h"
#include "bulk/manifest.h"
#include "fuzz.h"

static void read_journal(const char *bytes, size_t size)
{
    struct journal_record record;
    for (size_t at = 0, length; (length = journal_read(bytes + at, size - at, &record)) > 0; at += length) {
        FUZZ_CHECK(length <= size - at);
        uint64_t sum = 0;
        for (size_t i = 0; i < record.terms_bytes; i++) { sum += (unsigned char)record.terms[i]; }
        for (size_t i = 0; i < record.done_count; i++) { sum += journal_done(&record, i).row; }
        FUZZ_CHECK(sum != 1 || length > 0); /* it was all readable */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct manifest manifest;
    struct err err = {0};
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    read_journal(text, size);
    if (manifest_parse(text, size, "fuzz.json", &manifest, &err) == STATUS_OK) {
        FUZZ_CHECK(manifest.at.rows <= 1ull << 53);
        struct err other;
        terms_differ(manifest.terms.data == NULL ? "" : manifest.terms.data, manifest.terms.length, "a=1\nb=2\n",
                     &other);
        buffer_free(&manifest.terms);
    } else {
        FUZZ_CHECK(err.message[0] != '\0');
    }
    free(text);
    return 0;
}
