#include "bulk/manifest.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hex.h"
#include "base/json.h"
#include "base/json_tree.h"
#include "base/version.h"

enum { PIECE_BYTES = 1 << 20, MANIFEST_MAX_BYTES = 64 << 20 };

enum status manifest_hash(const char *path, char hex[SHA256_HEX], uint64_t *size, struct err *err)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    FILE *file = fopen(path, "rbe");
    if (!file) { return err_set_errno(err, "cannot open %s", path); }
    char *piece = malloc(PIECE_BYTES);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool good = piece && context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1;
    *size = 0;
    for (size_t got; good && (got = fread(piece, 1, PIECE_BYTES, file)) > 0; *size += got) {
        good = EVP_DigestUpdate(context, piece, got) == 1;
    }
    enum status status = ferror(file) ? err_set_errno(err, "cannot read %s", path) : STATUS_OK;
    if (!good || EVP_DigestFinal_ex(context, digest, &length) != 1) {
        status = err_set(err, STATUS_NO_MEMORY, "no memory to hash %s", path);
    }
    hex_write(hex, digest, SHA256_HEX / 2);
    EVP_MD_CTX_free(context);
    free(piece);
    fclose(file);
    return status;
}

/* Writes an element of `files`: {"name":…,"rows":…,"bytes":…,"sha256":…}. */
static enum status put_file(struct buffer *to, const char *path, uint64_t rows, struct err *err)
{
    char hex[SHA256_HEX] = "";
    uint64_t size = 0;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    TRY(manifest_hash(path, hex, &size, err));
    buffer_json(to, ",\n    {'name': '%s', 'rows': %" PRIu64 ", 'bytes': %" PRIu64 ", 'sha256': %s}", name, rows, size,
                hex);
    return STATUS_OK;
}

static enum status put_files(struct buffer *to, const struct output *output, const struct store *store, uint64_t rows,
                             struct err *err)
{
    buffer_json(to, ",\n  'files': [");
    if (output->kind == OUTPUT_JSONL) { TRY(put_file(to, output->path, rows, err)); }
    for (uint64_t i = 0; output->kind != OUTPUT_JSONL && i < store_files(store, rows); i++) {
        char path[2 * PATH_MAX];
        store_file_path(store, i, path, sizeof path);
        TRY(put_file(to, path, store_file_rows(store, rows, i), err));
    }
    buffer_json(to, "\n  ]");
    return STATUS_OK;
}

static void put_terms(struct buffer *to, const char *terms)
{
    buffer_json(to, ",\n  'terms': {");
    for (const char *line = terms; *line != '\0';) {
        size_t key = strcspn(line, "="), value = strcspn(line + key + 1, "\n");
        buffer_json(to, ",\n    %.*s: %.*s", (int)key, line, (int)value, line + key + 1);
        line += key + 1 + value + 1;
    }
    buffer_json(to, "\n  }");
}

static enum status make(struct buffer *to, const struct output *output, const char *terms, const char *facts,
                        const struct store *store, const char *failures, const struct checkpoint *at, struct err *err)
{
    char hex[SHA256_HEX] = "";
    uint64_t size;
    buffer_json(to, "{\n  'sluice': %s", sluice_version);
    buffer_string(to, facts);
    buffer_json(to, ",\n  'rows': %" PRIu64 ",\n  'documents': %" PRIu64, at->rows, at->documents);
    buffer_json(to, ",\n  'computed': %" PRIu64 ",\n  'copied': %" PRIu64 ",\n  'failed': %" PRIu64, at->computed,
                at->copied, at->failed);
    buffer_json(to, ",\n  'input': '%016" PRIx64 "%016" PRIx64 "'", at->digest.high, at->digest.low);
    if (at->failed > 0) {
        TRY(manifest_hash(failures, hex, &size, err));
        buffer_json(to, ",\n  'failures_sha256': %s", hex);
    }
    TRY(put_files(to, output, store, at->rows, err));
    put_terms(to, terms);
    buffer_json(to, ",\n  'format': 1\n}\n");
    return buffer_ok(to) ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the manifest");
}

enum status manifest_write(const struct output *output, const char *terms, const char *facts, const struct store *store,
                           const char *failures, const struct checkpoint *at, struct err *err)
{
    struct buffer text = {0};
    enum status status = make(&text, output, terms, facts, store, failures, at, err);
    if (status == STATUS_OK) { status = file_write_durably(output->manifest, &text, err); }
    buffer_free(&text);
    return status;
}

static enum status read_numbers(const cJSON *root, const char *name, struct checkpoint *at, struct err *err)
{
    const struct {
        const char *field;
        uint64_t *to;
    } numbers[] = {{"rows", &at->rows},
                   {"documents", &at->documents},
                   {"computed", &at->computed},
                   {"copied", &at->copied},
                   {"failed", &at->failed}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const cJSON *value = json_field(root, numbers[i].field);
        if (!value || !json_whole(value, numbers[i].to)) {
            return err_set(err, STATUS_BAD_INPUT, "%s: %s is not a whole number", name, numbers[i].field);
        }
    }
    return STATUS_OK;
}

static enum status read_digest(const cJSON *root, const char *name, struct hash *out, struct err *err)
{
    const char *text = NULL;
    TRY(json_string(root, name, "input", &text, err));
    if (!text || strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32) {
        return err_set(err, STATUS_BAD_INPUT, "%s: input is not 32 hexadecimal digits", name);
    }
    char high[17] = "";
    memcpy(high, text, 16);
    out->high = strtoull(high, NULL, 16);
    out->low = strtoull(text + 16, NULL, 16);
    return STATUS_OK;
}

static enum status read_terms(const cJSON *root, const char *name, struct buffer *out, struct err *err)
{
    const cJSON *terms = json_field(root, "terms"), *term;
    if (!cJSON_IsObject(terms)) { return err_set(err, STATUS_BAD_INPUT, "%s: terms is not an object", name); }
    cJSON_ArrayForEach(term, terms)
    {
        if (!cJSON_IsString(term)) {
            return err_set(err, STATUS_BAD_INPUT, "%s: terms.%.80s is not a string", name, term->string);
        }
        buffer_format(out, "%s=%s\n", term->string, term->valuestring);
    }
    return buffer_ok(out) ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for %s", name);
}

enum status manifest_parse(const char *bytes, size_t length, const char *name, struct manifest *out, struct err *err)
{
    cJSON *root = NULL;
    *out = (struct manifest){0};
    TRY(json_parse(bytes, length, name, &root, err));
    enum status status = read_numbers(root, name, &out->at, err);
    if (status == STATUS_OK) { status = read_digest(root, name, &out->at.digest, err); }
    if (status == STATUS_OK) { status = read_terms(root, name, &out->terms, err); }
    const cJSON *failures = json_field(root, "failures_sha256");
    if (cJSON_IsString(failures)) { snprintf(out->failures, sizeof out->failures, "%s", failures->valuestring); }
    cJSON_Delete(root);
    if (status != STATUS_OK) { buffer_free(&out->terms); }
    return status;
}

enum status manifest_read(const char *path, struct manifest *out, bool *found, struct err *err)
{
    struct buffer text = {0};
    *out = (struct manifest){0};
    enum status status = file_read(path, MANIFEST_MAX_BYTES, &text, err);
    *found = status != STATUS_NOT_FOUND;
    if (status == STATUS_OK) { status = manifest_parse(text.data, text.length, path, out, err); }
    buffer_free(&text);
    return *found ? status : STATUS_OK;
}

static enum status count_lines(const char *path, uint64_t *lines, struct err *err)
{
    FILE *file = fopen(path, "rbe");
    char *piece = malloc(PIECE_BYTES);
    *lines = 0;
    for (size_t got; file && piece && (got = fread(piece, 1, PIECE_BYTES, file)) > 0;) {
        for (char *at = piece; (at = memchr(at, '\n', (size_t)(piece + got - at))) != NULL; at++) { ++*lines; }
    }
    enum status status = !file          ? err_set_errno(err, "cannot open %s", path)
                         : !piece       ? err_set(err, STATUS_NO_MEMORY, "no memory to read %s", path)
                         : ferror(file) ? err_set_errno(err, "cannot read %s", path)
                                        : STATUS_OK;
    if (file) { fclose(file); }
    free(piece);
    return status;
}

enum { NO_SIZE = 0 };

/* Checks a file, which has that many bytes, unless they are NO_SIZE, or, if it is one of lines, that many lines. */
static enum status check_file(const char *path, uint64_t bytes, uint64_t lines, bool has_lines, struct err *err)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        return err_set(err, STATUS_BAD_INPUT, "%s is gone, though its job is finished; --overwrite begins again", path);
    }
    uint64_t now = (uint64_t)info.st_size;
    bool same = bytes != NO_SIZE && now == bytes;
    if (!same && has_lines) {
        uint64_t counted;
        TRY(count_lines(path, &counted, err));
        same = counted == lines;
    }
    if (same) { return STATUS_OK; }
    return err_set(err, STATUS_BAD_INPUT,
                   "%s was cut or changed since its job was finished: it has %llu bytes; --overwrite begins again",
                   path, (unsigned long long)now);
}

static enum status check_listed(const struct output *output, const cJSON *root, struct err *err)
{
    const cJSON *files = json_field(root, "files"), *file;
    cJSON_ArrayForEach(file, files)
    {
        char path[2 * PATH_MAX];
        uint64_t bytes, rows;
        const cJSON *name = json_field(file, "name");
        if (!cJSON_IsString(name) || !json_whole(json_field(file, "bytes"), &bytes) ||
            !json_whole(json_field(file, "rows"), &rows)) {
            return err_set(err, STATUS_BAD_INPUT, "%s: files has no name, bytes and rows; --overwrite begins again",
                           output->manifest);
        }
        bool shards = output->kind == OUTPUT_SHARDS;
        snprintf(path, sizeof path, "%s%s%s", output->path, shards ? "/" : "", shards ? name->valuestring : "");
        TRY(check_file(path, bytes, rows, output->kind == OUTPUT_JSONL, err));
    }
    return STATUS_OK;
}

enum status manifest_check(const struct output *output, uint64_t rows, bool ids, bool chunks, struct err *err)
{
    struct buffer text = {0};
    cJSON *root = NULL;
    enum status status = file_read(output->manifest, MANIFEST_MAX_BYTES, &text, err);
    if (status == STATUS_OK) { status = json_parse(text.data, text.length, output->manifest, &root, err); }
    if (status == STATUS_OK) { status = check_listed(output, root, err); }
    if (status == STATUS_OK && ids) { status = check_file(output->ids, NO_SIZE, rows, true, err); }
    uint64_t number_bytes = rows * sizeof(uint64_t);
    if (status == STATUS_OK && chunks) {
        status = check_file(output->documents, NPY_HEADER_BYTES + number_bytes, rows, false, err);
    }
    if (status == STATUS_OK && chunks) {
        status = check_file(output->chunks, NPY_HEADER_BYTES + 2 * number_bytes, rows, false, err);
    }
    cJSON_Delete(root);
    buffer_free(&text);
    return status;
}

const char *terms_find(const char *terms, size_t bytes, const char *key, size_t key_bytes, size_t *length)
{
    for (const char *line = terms, *end = terms + bytes; line < end;) {
        const char *feed = memchr(line, '\n', (size_t)(end - line));
        const char *stop = feed ? feed : end;
        if ((size_t)(stop - line) > key_bytes && memcmp(line, key, key_bytes) == 0 && line[key_bytes] == '=') {
            *length = (size_t)(stop - line) - key_bytes - 1;
            return line + key_bytes + 1;
        }
        line = stop + (feed != NULL);
    }
    return NULL;
}

static void put_option(struct buffer *to, const char *key, size_t key_bytes, const char *value, size_t length)
{
    buffer_string(to, length == 0 ? "no --" : "--");
    for (size_t i = 0; i < key_bytes; i++) { buffer_append(to, key[i] == '_' ? "-" : &key[i], 1); }
    if (length > 0) { buffer_format(to, " %.*s", (int)(length < 100 ? length : 100), value); }
}

/* Reports an option that differs. If only one of the two runs was given it, its value is empty in the other. --template
 * takes the place of --field. */
static void say_other_option(const char *const terms[2], const size_t sizes[2], const char *key, size_t key_bytes,
                             struct err *err)
{
    struct buffer said[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++) {
        const char *name = key;
        size_t name_bytes = key_bytes, length = 0;
        const char *value = terms_find(terms[i], sizes[i], name, name_bytes, &length);
        if (length == 0 && key_bytes == strlen("field") && memcmp(key, "field", key_bytes) == 0) {
            name = "template";
            name_bytes = strlen(name);
            value = terms_find(terms[i], sizes[i], name, name_bytes, &length);
        }
        put_option(&said[i], name, name_bytes, value, length);
    }
    bool whole = buffer_ok(&said[0]) && buffer_ok(&said[1]);
    err_set(err, STATUS_BAD_INPUT, "this job began with %.*s, and not %.*s; --overwrite begins again",
            whole ? (int)said[0].length : 13, whole ? said[0].data : "other options", whole ? (int)said[1].length : 5,
            whole ? said[1].data : "these");
    buffer_free(&said[0]);
    buffer_free(&said[1]);
}

/* Writes "=\"id\" (name)", or only the id if there is no name. */
static void put_model(struct buffer *to, const char *terms, size_t bytes, const char *id, size_t id_bytes)
{
    size_t length = 0;
    const char *name = terms_find(terms, bytes, TERM_MODEL_NAME, strlen(TERM_MODEL_NAME), &length);
    buffer_format(to, "%.*s", (int)id_bytes, id);
    if (name) { buffer_format(to, " (%.*s)", (int)(length < 100 ? length : 100), name); }
}

/* Reports that the model differs: the ids decide, and the names tell people which models they are. */
static void say_other_model(const char *before, size_t before_bytes, const char *now, struct err *err)
{
    struct buffer said = {0};
    size_t length = 0;
    const char *id = terms_find(before, before_bytes, "model", 5, &length);
    buffer_string(&said, "this job began with another model: ");
    put_model(&said, before, before_bytes, id ? id : "?", id ? length : 1);
    buffer_string(&said, ", and not ");
    id = terms_find(now, strlen(now), "model", 5, &length);
    put_model(&said, now, strlen(now), id ? id : "?", id ? length : 1);
    err_set(err, STATUS_BAD_INPUT, "%.*s; --overwrite begins again", buffer_ok(&said) ? (int)said.length : 0,
            said.data);
    buffer_free(&said);
}

bool terms_differ(const char *before, size_t before_bytes, const char *now, struct err *err)
{
    for (const char *line = now; *line != '\0';) {
        size_t key = strcspn(line, "="), value = strcspn(line + key + 1, "\n"), length = 0;
        const char *old = terms_find(before, before_bytes, line, key, &length);
        const char *new = line + key + 1;
        if (key == strlen(TERM_MODEL_NAME) && memcmp(line, TERM_MODEL_NAME, key) == 0) { /* the id decides */
            line = new + value + 1;
            continue;
        }
        if (key == 5 && memcmp(line, "model", key) == 0 && (!old || length != value || memcmp(old, new, value) != 0)) {
            say_other_model(before, before_bytes, now, err);
            return true;
        }
        if (old && length != value && (length == 0 || value == 0)) {
            say_other_option((const char *[]){before, now}, (size_t[]){before_bytes, strlen(now)}, line, key, err);
            return true;
        }
        if (!old || length != value || memcmp(old, new, value) != 0) {
            err_set(err, STATUS_BAD_INPUT,
                    "this job began with another %.*s: %.*s, and not %.*s; --overwrite begins again", (int)key, line,
                    !old ? 2 : (int)(length < 100 ? length : 100), old ? old : "\"\"", (int)(value < 100 ? value : 100),
                    new);
            return true;
        }
        line = new + value + 1;
    }
    return false;
}
