/* A line of a batch: whatever it is, one line of JSON comes out, with its custom_id, in one of the two files; the texts
 * of a good one follow each other. The first byte says which of its texts have no vector. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "fuzz.h"
#include "batch/lines.h"

enum { DIM = 3 };

static void check_texts(const struct document *document)
{
    uint32_t begin = 0, end = 0;
    FUZZ_CHECK(document->texts > 0 && document->id);
    for (uint32_t i = 0; i < document->texts; i++) {
        memcpy(&end, document->kept + i * sizeof end, sizeof end);
        FUZZ_CHECK(end > begin && utf8_valid(document->text + begin, end - begin));
        begin = end;
    }
    FUZZ_CHECK(end == document->text_bytes);
}

static void check_line(const struct buffer *line, const struct document *document)
{
    const char *id;
    size_t id_bytes;
    FUZZ_CHECK(line->length > 0 && memchr(line->data, '\n', line->length) == line->data + line->length - 1);
    FUZZ_CHECK(json_valid(line->data, line->length - 1));
    FUZZ_CHECK(json_member(line->data, line->length - 1, "custom_id", &id, &id_bytes));
    FUZZ_CHECK(id_bytes == (document->id ? document->id_bytes : 4));
    FUZZ_CHECK(memcmp(id, document->id ? document->id : "null", id_bytes) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) { return 0; }
    char *line = malloc(size);
    memcpy(line, data + 1, size - 1);
    struct batch_lines lines = {.model = "tiny", .dim = DIM, .normalize = true, .max_text_bytes = 1 << 16};
    struct records records = batch_lines_records(&lines);
    struct document document = {.line = 7};
    struct buffer good = {0}, failures = {0};
    struct err err;
    FUZZ_CHECK(records.read(records.context, line, size - 1, &document, &err) == STATUS_OK);
    bool failed = document.code != ROW_OK;
    if (!failed) { check_texts(&document); }
    float *vectors = calloc(document.texts + 1, DIM * sizeof *vectors);
    struct record_result result = {
        .document = &document, .vectors = vectors, .count = document.texts, .dim = DIM, .stride = DIM, .tokens = size};
    if (!failed && data[0] < document.texts) {
        result.code = ROW_NON_FINITE;
        result.failed = data[0];
        failed = true;
    }
    records.write(records.context, &result, &good, &failures);
    FUZZ_CHECK(buffer_ok(&good) && buffer_ok(&failures));
    FUZZ_CHECK((failed ? good : failures).length == 0);
    check_line(failed ? &failures : &good, &document);
    buffer_free(&good);
    buffer_free(&failures);
    batch_lines_free(&lines);
    free(vectors);
    free(line);
    return 0;
}
