/* File by file: the format gives a function that reads one document. What all formats share (a bound for texts, UTF-8,
 * empty texts, the hash) is looked at here once. */
#include "bulk/source.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/utf8.h"
#include "bulk/json_text.h"
#include "bulk/source_state.h"

const char *const source_format_names[] = {
    [FORMAT_AUTO] = "auto", [FORMAT_LINES] = "lines",       [FORMAT_JSONL] = "jsonl",     [FORMAT_CSV] = "csv",
    [FORMAT_TSV] = "tsv",   [FORMAT_DOCUMENT] = "document", [FORMAT_DOCUMENT + 1] = NULL,
};

enum status source_open(const struct source_options *options, struct source **out, struct err *err)
{
    struct source *source = calloc(1, sizeof *source);
    if (source == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the input");
    source->options = *options;
    enum status status = files_open(&source->files, options->operands, options->operand_count, options->glob, err);
    if (status != STATUS_OK) {
        free(source);
        return status;
    }
    *out = source;
    return STATUS_OK;
}

static void close_file(struct source *source)
{
    if (source->reader.stream != NULL) {
        source->read_bytes += stream_raw_bytes(source->reader.stream);
        reader_close(&source->reader);
    }
    source->file.path = NULL;
}

void source_close(struct source *source)
{
    if (source == NULL)
        return;
    close_file(source);
    files_close(&source->files);
    recipe_scratch_free(&source->scratch);
    free(source->fields.values);
    buffer_free(&source->said);
    free(source);
}

uint64_t source_read_bytes(const struct source *source)
{
    return source->read_bytes + (source->reader.stream == NULL ? 0 : stream_raw_bytes(source->reader.stream));
}

uint64_t source_total_bytes(const struct source *source)
{
    return source->files.total_bytes;
}

/* "a/b.jsonl.gz" has the ending ".jsonl". */
static bool named(const char *path, const char *ending)
{
    size_t length = strlen(path), tail = strlen(ending);
    if (length > 3 && strcmp(path + length - 3, ".gz") == 0)
        length -= 3;
    else if (length > 4 && strcmp(path + length - 4, ".zst") == 0)
        length -= 4;
    return length >= tail && memcmp(path + length - tail, ending, tail) == 0;
}

static enum source_format format_of(const struct source *source)
{
    const char *path = source->file.path;
    if (source->options.format != FORMAT_AUTO)
        return source->options.format;
    if (named(path, ".jsonl") || named(path, ".ndjson"))
        return FORMAT_JSONL;
    if (named(path, ".csv"))
        return FORMAT_CSV;
    if (named(path, ".tsv"))
        return FORMAT_TSV;
    return source->file.in_folder ? FORMAT_DOCUMENT : FORMAT_LINES;
}

static bool is_table(enum source_format format)
{
    return format == FORMAT_JSONL || format == FORMAT_CSV || format == FORMAT_TSV;
}

void source_fail(struct source *source, struct document *out, enum row_code code, const char *format, ...)
{
    char message[256];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    source->said.length = 0;
    buffer_string(&source->said, message);
    out->code = code;
    out->message = source->said.data;
    out->message_bytes = source->said.length;
}

/* A file that is one document: its name is its id. */
static void put_name(struct source *source, struct document *out)
{
    source->scratch.id.length = 0;
    json_put_string(&source->scratch.id, out->file, strlen(out->file));
    out->id = source->scratch.id.data;
    out->id_bytes = source->scratch.id.length;
}

/* Opens the next file; `source->file.path` is NULL when there is none. A file of a folder that cannot be opened becomes
 * a failed document. */
static enum status open_next(struct source *source, struct document *out, struct err *err)
{
    TRY(files_next(&source->files, &source->file, err));
    if (source->file.path == NULL)
        return STATUS_OK;
    source->format = format_of(source);
    source->column_count = 0;
    size_t limit = source->options.max_text_bytes;
    if (is_table(source->format))
        limit = limit * RECORD_FACTOR + RECORD_EXTRA;
    struct err why;
    enum status status = reader_open(&source->reader, source->file.path, limit, source->options.stop, &why);
    if (status == STATUS_OK)
        return STATUS_OK;
    source->reader.stream = NULL;
    if (!source->file.in_folder || status == STATUS_NO_MEMORY) {
        *err = why;
        return status;
    }
    *out = (struct document){.file = source->file.path, .line = 1};
    put_name(source, out);
    source_fail(source, out, ROW_UNREADABLE, "%s", why.message);
    return STATUS_OK;
}

static enum status read_line(struct source *source, struct document *out, bool *found, struct err *err)
{
    struct record record;
    TRY(reader_line(&source->reader, &record, err));
    *found = record.bytes != NULL;
    out->text = record.bytes;
    out->text_bytes = record.length;
    out->line = record.line;
    if (record.too_large)
        source_fail(source, out, ROW_TOO_LARGE, "%s", row_code_text(ROW_TOO_LARGE));
    return STATUS_OK;
}

static enum status read_document(struct source *source, struct document *out, bool *found, struct err *err)
{
    struct record record;
    TRY(reader_whole(&source->reader, &record, err));
    *found = record.bytes != NULL || record.line > 0;
    out->text = record.bytes == NULL ? "" : record.bytes;
    out->text_bytes = record.length;
    out->line = 1;
    if (record.too_large)
        source_fail(source, out, ROW_TOO_LARGE, "%s", row_code_text(ROW_TOO_LARGE));
    put_name(source, out);
    return STATUS_OK;
}

static enum status read_next(struct source *source, struct document *out, bool *found, struct err *err)
{
    *out = (struct document){.file = source->file.path};
    switch (source->format) {
    case FORMAT_JSONL:
        return source_read_json(source, out, found, err);
    case FORMAT_CSV:
    case FORMAT_TSV:
        return source_read_csv(source, out, found, err);
    case FORMAT_DOCUMENT:
        return read_document(source, out, found, err);
    case FORMAT_AUTO:
    case FORMAT_LINES:
        break;
    }
    return read_line(source, out, found, err);
}

/* What no text may be, whatever its format. */
static void check_text(struct source *source, struct document *out)
{
    if (out->code != ROW_OK)
        return;
    size_t valid = utf8_valid_prefix(out->text, out->text_bytes);
    if (out->text_bytes > source->options.max_text_bytes) {
        source_fail(source, out, ROW_TOO_LARGE, "%s", row_code_text(ROW_TOO_LARGE));
    } else if (valid < out->text_bytes) {
        source_fail(source, out, ROW_BAD_UTF8, "not UTF-8 at byte %zu; convert the file first (iconv)", valid + 1);
    } else if (out->text_bytes == 0 && !source->options.empty_texts) {
        source_fail(source, out, ROW_EMPTY_TEXT, "%s", row_code_text(ROW_EMPTY_TEXT));
    }
}

static void give_out(struct source *source, struct document *out)
{
    check_text(source, out);
    out->number = source->documents++;
    if (out->code == ROW_OK) {
        XXH128_hash_t hash = XXH3_128bits(out->text, out->text_bytes);
        out->hash = (struct hash){hash.low64, hash.high64};
    }
}

enum status source_next(struct source *source, struct document *out, bool *more, struct err *err)
{
    *out = (struct document){0};
    for (;;) {
        if (source->reader.stream == NULL) {
            TRY(open_next(source, out, err));
            *more = source->file.path != NULL;
            if (!*more)
                return STATUS_OK;
            if (out->code != ROW_OK)
                break;
        }
        TRY(read_next(source, out, more, err));
        if (*more)
            break;
        close_file(source);
    }
    give_out(source, out);
    return STATUS_OK;
}
