/* File by file: the format gives a function that reads one document. What all formats share (a bound for texts, UTF-8,
 * empty texts, the hash) is looked at here once. */
#include "bulk/source.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/utf8.h"
#include "bulk/csv.h"
#include "bulk/json_pick.h"
#include "bulk/json_text.h"

/* A record may be so much larger than the texts in it: escapes, and fields that nobody asked for. */
enum { RECORD_FACTOR = 8, RECORD_EXTRA = 1 << 16 };

struct source {
    struct source_options options;
    struct files files;
    struct file_name file; /* that is open; path NULL: none */
    enum source_format format;
    struct reader reader;
    uint64_t read_bytes; /* of the files before it */
    uint64_t documents;

    struct recipe_scratch scratch;
    struct csv_fields fields;
    uint32_t columns[RECIPE_FIELDS_MAX]; /* where the recipe's fields stand in the records of this file */
    uint32_t column_count;               /* 0: the header was not read */
    struct buffer said;                  /* a document's message, or its id */
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

static void fail(struct source *source, struct document *out, enum row_code code, const char *message)
{
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
    fail(source, out, ROW_UNREADABLE, why.message);
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
        fail(source, out, ROW_TOO_LARGE, row_code_text(ROW_TOO_LARGE));
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
        fail(source, out, ROW_TOO_LARGE, row_code_text(ROW_TOO_LARGE));
    put_name(source, out);
    return STATUS_OK;
}

static void fail_json(struct source *source, struct document *out, enum json_pick_problem problem, size_t at)
{
    static const struct {
        enum row_code code;
        const char *text;
    } said[] = {
        [JSON_PICK_NOT_OBJECT] = {ROW_NOT_OBJECT, "JSON, but not an object"},
        [JSON_PICK_BROKEN] = {ROW_BAD_JSON, "not JSON"},
        [JSON_PICK_TOO_DEEP] = {ROW_BAD_JSON, "nested too deep"},
        [JSON_PICK_BAD_UTF8] = {ROW_BAD_UTF8, "not UTF-8"},
    };
    fail(source, out, said[problem].code, said[problem].text);
    if (problem != JSON_PICK_NOT_OBJECT)
        buffer_format(&source->said, " at byte %zu of the line", at + 1);
    out->message = source->said.data;
    out->message_bytes = source->said.length;
}

static bool is_blank(const struct record *record)
{
    for (size_t i = 0; i < record->length; i++)
        if (record->bytes[i] != ' ' && record->bytes[i] != '\t')
            return false;
    return !record->too_large;
}

static enum status read_json(struct source *source, struct document *out, bool *found, struct err *err)
{
    const struct recipe *recipe = source->options.recipe;
    struct value values[RECIPE_FIELDS_MAX];
    struct record record;
    size_t at;
    do
        TRY(reader_line(&source->reader, &record, err));
    while (record.bytes != NULL && is_blank(&record));
    *found = record.bytes != NULL;
    out->line = record.line;
    if (!*found)
        return STATUS_OK;
    if (record.too_large) {
        fail(source, out, ROW_TOO_LARGE, "the line is longer than 8 times --max-text-bytes");
        return STATUS_OK;
    }
    enum json_pick_problem problem =
        json_pick(record.bytes, record.length, recipe->fields, recipe->field_count, values, &at);
    if (problem == JSON_PICK_OK)
        return recipe_make(recipe, values, &source->scratch, out, err);
    fail_json(source, out, problem, at);
    return STATUS_OK;
}

/* One record of CSV ahead in the reader, whole; `*length` 0 at the end of the file. */
static enum status find_record(struct source *source, char separator, struct record *out, struct csv_record *found,
                               struct err *err)
{
    struct reader *reader = &source->reader;
    *found = (struct csv_record){0};
    for (;;) {
        *out = reader_ahead(reader);
        if (reader->ended && out->length == 0)
            return STATUS_OK;
        if (csv_find(out->bytes, out->length, reader->ended, separator, found)) {
            reader_take(reader, found->length, found->lines);
            out->length = found->content;
            out->too_large = found->content > reader->limit;
            if (out->length > 0 || found->broken)
                return STATUS_OK;
            continue; /* an empty line */
        }
        if (out->length > reader->limit)
            return reader_line(reader, out, err); /* skips it */
        TRY(reader_more(reader, err));
    }
}

/* Finds the recipe's fields among the names of the columns. */
static enum status bind(struct source *source, struct err *err)
{
    const struct recipe *recipe = source->options.recipe;
    for (uint32_t f = 0; f < recipe->field_count; f++) {
        const char *name = recipe->fields[f];
        uint32_t column = 0;
        if (source->options.headerless) {
            column = (uint32_t)strtoul(name, NULL, 10) - 1;
        } else {
            const struct value *names = source->fields.values;
            while (column < source->fields.count && (names[column].length != strlen(name) ||
                                                     memcmp(names[column].bytes, name, names[column].length) != 0))
                column++;
        }
        if (column >= source->fields.count)
            return err_set(err, STATUS_BAD_INPUT, "%s line 1: no column \"%s\"%s", source->file.path, name,
                           source->options.headerless ? "; without a header columns are called 1, 2, 3 ..."
                                                      : " in its header; --no-header if it has none");
        source->columns[f] = column;
    }
    source->column_count = source->fields.count;
    return STATUS_OK;
}

static enum status make_row(struct source *source, struct document *out, struct err *err)
{
    const struct recipe *recipe = source->options.recipe;
    struct value values[RECIPE_FIELDS_MAX];
    if (source->fields.count != source->column_count) {
        fail(source, out, ROW_BAD_CSV, "");
        buffer_format(&source->said, "%u fields, where the first line has %u", source->fields.count,
                      source->column_count);
        out->message = source->said.data;
        out->message_bytes = source->said.length;
        return STATUS_OK;
    }
    for (uint32_t f = 0; f < recipe->field_count; f++)
        values[f] = source->fields.values[source->columns[f]];
    return recipe_make(recipe, values, &source->scratch, out, err);
}

/* A field that is passed on must be UTF-8, too: it becomes JSON. */
static bool check_record(struct source *source, const struct record *record, const struct csv_record *found,
                         struct document *out)
{
    size_t valid = record->too_large ? 0 : utf8_valid_prefix(record->bytes, record->length);
    if (!record->too_large && !found->broken && valid == record->length)
        return true;
    fail(source, out, record->too_large ? ROW_TOO_LARGE : found->broken ? ROW_BAD_CSV : ROW_BAD_UTF8, "");
    if (record->too_large)
        buffer_string(&source->said, "the record is longer than 8 times --max-text-bytes");
    else if (found->broken)
        buffer_format(&source->said, "a quote that is never closed, or a letter behind a closing one, at column %zu",
                      found->column);
    else
        buffer_format(&source->said, "not UTF-8 at byte %zu of the record", valid + 1);
    out->message = source->said.data;
    out->message_bytes = source->said.length;
    return false;
}

static enum status read_csv(struct source *source, struct document *out, bool *found, struct err *err)
{
    char separator = source->format == FORMAT_TSV ? '\t' : ',';
    for (;;) {
        struct record record;
        struct csv_record end;
        TRY(find_record(source, separator, &record, &end, err));
        *found = record.length > 0 || record.too_large;
        out->line = record.line;
        bool header = source->column_count == 0 && !source->options.headerless;
        if (!*found || (!check_record(source, &record, &end, out) && !header))
            return STATUS_OK;
        if (out->code != ROW_OK)
            return err_set(err, STATUS_BAD_INPUT, "%s line %llu: the header: %.*s", source->file.path,
                           (unsigned long long)record.line, (int)out->message_bytes, out->message);
        TRY(csv_split(record.bytes, record.length, separator, &source->fields, err));
        if (source->column_count == 0)
            TRY(bind(source, err));
        if (!header)
            return make_row(source, out, err);
    }
}

static enum status read_next(struct source *source, struct document *out, bool *found, struct err *err)
{
    *out = (struct document){.file = source->file.path};
    switch (source->format) {
    case FORMAT_JSONL:
        return read_json(source, out, found, err);
    case FORMAT_CSV:
    case FORMAT_TSV:
        return read_csv(source, out, found, err);
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
        fail(source, out, ROW_TOO_LARGE, row_code_text(ROW_TOO_LARGE));
    } else if (valid < out->text_bytes) {
        fail(source, out, ROW_BAD_UTF8, "");
        buffer_format(&source->said, "not UTF-8 at byte %zu; convert the file first (iconv)", valid + 1);
        out->message = source->said.data;
        out->message_bytes = source->said.length;
    } else if (out->text_bytes == 0 && !source->options.empty_texts) {
        fail(source, out, ROW_EMPTY_TEXT, row_code_text(ROW_EMPTY_TEXT));
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
