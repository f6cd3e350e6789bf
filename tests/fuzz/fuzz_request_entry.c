/* Any bytes as a stream entry: every entry becomes a request that is either whole and within the rules or has an error
 * code, a printable message and an address to answer to, on a queue that embeds and on one that reranks and classifies.
 * The first byte chooses class and origin; fields are parted by 0x1e, name and value by 0x1f. */
#include <string.h>

#include "base/utf8.h"
#include "fuzz.h"
#include "schedule/request.h"

enum { FIELDS = 80 };

static char query_name[] = "query", query_text[] = "query: ";
static const struct model_prompt prompt = {query_name, query_text};

static char label[] = "label";
static char *names[] = {label};
static const struct model_head one_label = {.labels = 1, .names = names};

static const struct request_rules rules = {
    .model_name = "mini",
    .model_id = "0123abcd",
    .encoding = ENCODING_JSON,
    .dim = 4,
    .max_tokens = 16,
    .max_text_bytes = 64,
    .max_inputs = 6,
    .default_ttl_s = 3600,
    .max_ttl_s = 604800,
    .error_ttl_s = 3600,
    .default_max_attempts = 4,
    .truncate = true,
    .normalize = true,
    .prompts = &prompt,
    .prompt_count = 1,
    .into_keys = "doc:*",
};

static size_t split(const char *data, size_t size, struct entry_field *fields)
{
    size_t count = 0;
    while (size > 0 && count < FIELDS) {
        const char *end = memchr(data, 0x1e, size);
        size_t length = end == NULL ? size : (size_t)(end - data);
        const char *mark = memchr(data, 0x1f, length);
        size_t name = mark == NULL ? length : (size_t)(mark - data);
        size_t value = mark == NULL ? length : name + 1;
        fields[count++] = (struct entry_field){data, name, data + value, length - value};
        data += length + (end != NULL);
        size -= length + (end != NULL);
    }
    return count;
}

static void check_address(const struct request *request)
{
    enum request_class class;
    struct entry_id id;
    FUZZ_CHECK(memchr(request->identity.name, '\0', sizeof(request->identity.name)) != NULL);
    FUZZ_CHECK(memchr(request->identity.id, '\0', sizeof(request->identity.id)) != NULL);
    FUZZ_CHECK(request_name_parse(request->identity.name, strlen(request->identity.name), &class, &id));
    FUZZ_CHECK(strcmp(request->identity.id, request->identity.name) == 0 ||
               request_id_usable(request->identity.id, strlen(request->identity.id)));
    for (const char *at = request->identity.id; *at != '\0'; at++) { FUZZ_CHECK(*at >= ' ' && *at <= '~'); }
}

/* Every reply names the unknown fields of its request. */
static void check_ignored(const struct request *request, size_t field_count)
{
    const char *ignored = request->identity.ignored;
    uint32_t bytes = request->identity.ignored_bytes, commas = 0;
    FUZZ_CHECK((ignored == NULL) == (bytes == 0) && bytes <= 8 * 65 + 3 && utf8_valid(ignored, bytes));
    for (uint32_t i = 0; i < bytes; i++) {
        FUZZ_CHECK((unsigned char)ignored[i] >= ' ' && ignored[i] != 0x7f);
        commas += ignored[i] == ',';
    }
    FUZZ_CHECK(commas < 9 && (commas == 0 || commas < field_count));
}

/* Checks the rules for every request, also one that has failed: an error reply echoes parts of it. */
static void check_always(const struct request *request, size_t field_count)
{
    check_address(request);
    FUZZ_CHECK(request->output.ttl_s >= 1 && request->output.ttl_s <= rules.max_ttl_s);
    FUZZ_CHECK(request->retry.max_attempts >= 1 && request->retry.max_attempts <= 10 && request->retry.attempt >= 1);
    FUZZ_CHECK(request->rows_left == request->row_count);
    check_ignored(request, field_count);
    FUZZ_CHECK(request->row_count <= rules.max_inputs);
    FUZZ_CHECK(request->identity.meta_bytes <= 4096 &&
               utf8_valid(request->identity.meta, request->identity.meta_bytes));
    FUZZ_CHECK(request->output.dims >= 1 && request->output.dims <= rules.dim &&
               request->output.encoding < ENCODING_COUNT);
    FUZZ_CHECK(strlen(request->identity.tenant) <= TENANT_MAX && strlen(request->output.results) <= RESULTS_NAME_MAX);
    FUZZ_CHECK(!request->output.notify || request->output.results[0] == '\0');
    FUZZ_CHECK(request->prompt == NULL || utf8_valid(request->prompt, request->prompt_bytes));
    for (uint32_t i = 0; i < request->identity.traceparent_bytes; i++) {
        FUZZ_CHECK(request->identity.traceparent[i] > ' ' && request->identity.traceparent[i] <= '~');
    }
    FUZZ_CHECK(request->identity.traceparent || !(request->identity.tracestate || request->identity.sampled));
    FUZZ_CHECK(!request->identity.traceparent || request->identity.traceparent_bytes >= 55);
    FUZZ_CHECK(request->identity.tracestate_bytes <= 512);
}

static void check_failed(const struct request *request, const struct entry *entry)
{
    FUZZ_CHECK(request->retry.retryable == entry->vanished && request->retry.message[0] != '\0');
    FUZZ_CHECK(!request->retry.row_failed || (request->inputs && request->retry.failed_index < rules.max_inputs));
    for (const char *c = request->retry.message; *c != '\0'; c++) { FUZZ_CHECK(*c >= ' ' && *c <= '~'); }
}

static void check_rows(const struct request *request)
{
    size_t bytes = 0;
    FUZZ_CHECK(request->inputs || request->row_count == 1);
    FUZZ_CHECK((request->task == TASK_EMBED) == (request->head == NULL));
    FUZZ_CHECK((request->task == TASK_RERANK) == (request->query != NULL));
    FUZZ_CHECK(request->output.into == NULL || (memcmp(request->output.into, "doc:", 4) == 0 && !request->inputs));
    FUZZ_CHECK(request->query == NULL || (request->inputs && utf8_valid(request->query, request->query_bytes)));
    FUZZ_CHECK(request->row_count >= 1 && request->tokens <= rules.max_tokens * request->row_count);
    for (uint32_t i = 0; i < request->row_count; i++) {
        const struct row *row = &request->rows[i];
        FUZZ_CHECK(row->text_bytes >= 1 && row->request == request && utf8_valid(row->text, row->text_bytes));
        bytes += row->text_bytes;
    }
    FUZZ_CHECK(bytes <= rules.max_text_bytes);
}

static void check_request(const struct request *request, const struct entry *entry)
{
    enum request_class class;
    struct entry_id id;
    check_always(request, entry->field_count);
    if (request->retry.code != CODE_NONE) {
        check_failed(request, entry);
    } else if (request->identity.target[0] != '\0') {
        FUZZ_CHECK(request->row_count == 0 &&
                   request_name_parse(request->identity.target, strlen(request->identity.target), &class, &id));
    } else {
        check_rows(request);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct entry_field fields[FIELDS];
    if (size < 1 || size > 1u << 16) { return 0; }
    struct entry entry = {.class = data[0] % CLASS_COUNT,
                          .origin = data[0] / 4 % 5,
                          .quarantine_runs = data[0] / 64,
                          .id = {1795252518106, data[0]},
                          .oversize = data[0] >= 250,
                          .vanished = data[0] == 249,
                          .fields = fields,
                          .field_count = split((const char *)data + 1, size - 1, fields)};
    for (int head = 0; head < 2; head++) {
        struct request_rules with = rules;
        with.head = head ? &one_label : NULL;
        struct request *request = request_parse(&with, &entry, 1);
        FUZZ_CHECK(request != NULL);
        check_request(request, &entry);
        FUZZ_CHECK(!entry.oversize || request->retry.code == CODE_TOO_LARGE);
        request_free(request);
    }
    return 0;
}
