/* Reads file by file. A function per format reads one document; the checks that all formats share (the bound of texts,
 * UTF-8, empty texts, the hash) are made once, in give_out. */
#include "bulk/input/source.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/json.h"
#include "base/utf8.h"
#include "bulk/dedup.h"
#include "bulk/input/csv.h"
#include "bulk/input/json.h"
#include "bulk/input/operands.h"
#include "bulk/input/sniff.h"

struct source {
    struct source_options options;
    struct operands operands;
    struct file_name file; /* the open one; path NULL: none */
    enum source_format format;
    struct reader reader;
    uint64_t read_bytes; /* of earlier files */
    uint64_t documents;

    struct recipe_scratch scratch;
    struct csv_fields fields;
    uint32_t columns[RECIPE_FIELDS_MAX];                                      /* of the recipe's fields in this file */
    uint32_t column_count;                                                    /* 0: the header was not read yet */
    enum { NO_ARRAY, ARRAY_BEGIN, ARRAY_FIRST, ARRAY_NEXT, ARRAY_END } array; /* JSON: the position of the reader */
    struct buffer said;                                                       /* a document's message */

    uint64_t judged;           /* JSON objects so far; all failed in the same field, with the first one's message … */
    bool usable;               /* … or one did not */
    struct buffer first_said;  /* the first one's message */
    struct buffer first_place; /* … its file and line */
    struct buffer there;       /* … and its fields */

    struct dedup *ids; /* NULL: no field is the id */
    uint64_t duplicates;
    char first_duplicate[256];

    struct buffer files_said; /* see source_files */
    unsigned files_noted;
    bool noted; /* the open file is among them */
};

enum { FILES_NOTED_MAX = 20 };

/* Adds the open file to those that source_files lists. `json` [length] is its first object, or NULL. */
static void note_file(struct source *source, const char *kind, const char *json, size_t length)
{
    struct buffer *to = &source->files_said, fields = {0};
    if (source->noted) { return; }
    source->noted = true;
    if (source->files_noted++ >= FILES_NOTED_MAX) {
        if (source->files_noted == FILES_NOTED_MAX + 1) { buffer_string(to, "and other files\n"); }
        return;
    }
    if (json) { pick_names(&fields, json, length); }
    buffer_format(to, "%s: %s", stream_name(source->reader.stream), kind);
    if (fields.length > 0) { buffer_format(to, " with the fields %.*s", (int)fields.length, fields.data); }
    buffer_string(to, "\n");
    buffer_free(&fields);
}

/* Sets a document's code and message; the message lives until the next one. */
PRINTF_LIKE(4, 5)
static void fail_document(struct source *source, struct document *out, enum row_code code, const char *format, ...)
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

/* --- Records of tables: a JSON object a line, or CSV; the recipe makes documents of their fields --- */

static void fail_json(struct source *source, struct document *out, enum pick_problem problem, size_t at)
{
    static const struct {
        enum row_code code;
        const char *text;
    } said[] = {
        [PICK_NOT_OBJECT] = {ROW_NOT_OBJECT, "JSON, but not an object"},
        [PICK_BROKEN] = {ROW_BAD_JSON, "not JSON"},
        [PICK_TOO_DEEP] = {ROW_BAD_JSON, "nested too deep"},
        [PICK_BAD_UTF8] = {ROW_BAD_UTF8, "not UTF-8"},
    };
    if (problem == PICK_NOT_OBJECT) {
        fail_document(source, out, said[problem].code, "%s", said[problem].text);
    } else {
        fail_document(source, out, said[problem].code, "%s at byte %zu of the %s", said[problem].text, at + 1,
                      source->array == NO_ARRAY ? "line" : "array's element");
    }
}

static bool is_blank(const struct record *record)
{
    for (size_t i = 0; i < record->length; i++) {
        if (record->bytes[i] != ' ' && record->bytes[i] != '\t') { return false; }
    }
    return !record->too_large;
}

/* The next byte that is no white space, or 0 at the end of the file. */
static enum status next_byte(struct reader *reader, char *out, struct err *err)
{
    for (;;) {
        struct record ahead = reader_ahead(reader);
        size_t at = 0;
        uint64_t lines = 0;
        for (; at < ahead.length && memchr(" \t\r\n", ahead.bytes[at], 4); at++) { lines += ahead.bytes[at] == '\n'; }
        *out = at < ahead.length ? ahead.bytes[at] : '\0';
        bool found = at < ahead.length;
        reader_take(reader, at, lines);
        if (found || reader->ended) { return STATUS_OK; }
        TRY(reader_more(reader, err));
    }
}

static enum status fail_array(const struct source *source, uint64_t line, const char *what, struct err *err)
{
    return err_set(err, STATUS_BAD_INPUT, "%s line %llu: %s", stream_name(source->reader.stream),
                   (unsigned long long)line, what);
}

/* Reads an element. One that is too long is scanned and dropped. */
static enum status read_element(struct source *source, struct record *out, struct err *err)
{
    struct reader *reader = &source->reader;
    struct element_scan scan = {0};
    size_t held = 0, scanned = 0;
    uint64_t line = reader->line + 1, taken = 0;
    for (;;) {
        struct record ahead = reader_ahead(reader);
        size_t used = held < ahead.length ? element_scan(&scan, ahead.bytes + held, ahead.length - held) : 0;
        held += used;
        scanned += used;
        if (scan.done) {
            *out = (struct record){ahead.bytes, held, line, scanned > reader->limit};
            reader_take(reader, held, scan.lines - taken);
            return scanned > 0 ? STATUS_OK : fail_array(source, line, "the array lacks an element here", err);
        }
        if (reader->ended) { return fail_array(source, line, "from here on the array is not closed", err); }
        if (scanned > reader->limit) {
            reader_take(reader, held, scan.lines - taken);
            taken = scan.lines;
            held = 0;
        }
        TRY(reader_more(reader, err));
    }
}

/* The next element of the file's array; bytes NULL at the end. */
static enum status next_element(struct source *source, struct record *out, struct err *err)
{
    struct reader *reader = &source->reader;
    char c;
    *out = (struct record){0};
    TRY(next_byte(reader, &c, err));
    if (source->array == ARRAY_BEGIN) {
        reader_take(reader, 1, 0); /* the bracket */
        source->array = ARRAY_FIRST;
        TRY(next_byte(reader, &c, err));
    }
    if (c == ']' && source->array != ARRAY_END) {
        reader_take(reader, 1, 0);
        source->array = ARRAY_END;
        TRY(next_byte(reader, &c, err));
    }
    if (source->array == ARRAY_END) {
        out->line = reader->line + 1;
        bool rest = reader_ahead(reader).length > 0;
        return rest ? fail_array(source, out->line, "more text after the end of the array", err) : STATUS_OK;
    }
    if (source->array == ARRAY_NEXT) {
        if (c != ',') {
            const char *what = c == '\0' ? "the array is not closed" : "neither a comma nor the end of the array";
            return fail_array(source, reader->line + 1, what, err);
        }
        reader_take(reader, 1, 0);
        TRY(next_byte(reader, &c, err));
    }
    source->array = ARRAY_NEXT;
    return read_element(source, out, err);
}

/* The next line that is not blank, or the next element. */
static enum status next_json(struct source *source, struct record *out, struct err *err)
{
    if (source->array != NO_ARRAY) { return next_element(source, out, err); }
    do {
        TRY(reader_line(&source->reader, out, err));
    } while (out->bytes && is_blank(out));
    return STATUS_OK;
}

/* True if the element is a string, which is a text where no field is named. */
static bool is_text(const struct source *source, const struct record *record, struct value *out)
{
    const char *begin = record->bytes, *end = begin + record->length;
    while (begin < end && memchr(" \t\r\n", *begin, 4)) { begin++; }
    while (begin < end && memchr(" \t\r\n", end[-1], 4)) { end--; }
    if (source->options.recipe->option || end - begin < 2 || *begin != '"') { return false; }
    *out = (struct value){VALUE_STRING, begin + 1, (size_t)(end - begin) - 2};
    return true;
}

/* Notes whether the names of the fields may be wrong, which they are not once one object has the fields. */
static void judge_fields(struct source *source, const struct document *document, const struct record *record)
{
    bool in_field = document->code == ROW_MISSING_FIELD || document->code == ROW_NOT_TEXT;
    if (!in_field || source->usable) {
        source->usable = true;
    } else if (source->judged == 0) {
        buffer_append(&source->first_said, document->message, document->message_bytes);
        buffer_format(&source->first_place, "%s line %llu", stream_name(source->reader.stream),
                      (unsigned long long)document->line);
        pick_names(&source->there, record->bytes, record->length);
    } else {
        source->usable = document->message_bytes != source->first_said.length ||
                         memcmp(document->message, source->first_said.data, document->message_bytes) != 0;
    }
    source->judged++;
}

static enum status read_json(struct source *source, struct document *out, bool *found, struct err *err)
{
    const struct recipe *recipe = source->options.recipe;
    struct value values[RECIPE_FIELDS_MAX];
    struct record record;
    size_t at;
    TRY(next_json(source, &record, err));
    *found = record.bytes;
    out->line = record.line;
    if (!*found) { return STATUS_OK; }
    if (record.too_large) {
        fail_document(source, out, ROW_TOO_LARGE, "the %s is longer than 8 times --max-text-bytes",
                      source->array == NO_ARRAY ? "line" : "array's element");
        return STATUS_OK;
    }
    enum pick_problem problem =
        pick_fields(record.bytes, record.length, recipe->fields, recipe->field_count, values, &at);
    if (problem == PICK_NOT_OBJECT && is_text(source, &record, &values[recipe->parts[0].field])) {
        note_file(source, source->array == NO_ARRAY ? "JSON Lines" : "a JSON array", NULL, 0);
        return recipe_make(recipe, values, &source->scratch, out, err);
    }
    if (problem != PICK_OK) {
        fail_json(source, out, problem, at);
        return STATUS_OK;
    }
    TRY(recipe_make(recipe, values, &source->scratch, out, err));
    note_file(source, source->array == NO_ARRAY ? "JSON Lines" : "a JSON array", record.bytes, record.length);
    judge_fields(source, out, &record);
    return STATUS_OK;
}

/* A broken quote breaks the file, not a record: the beginning of the next record is unknown. */
static enum status fail_quote(const struct source *source, uint64_t line, struct csv_position quote, const char *what,
                              struct err *err)
{
    return err_set(err, STATUS_BAD_INPUT, "%s line %llu: the quote at column %llu %s",
                   stream_name(source->reader.stream), (unsigned long long)(line + quote.line),
                   (unsigned long long)quote.column, what);
}

/* The next record without its line end; its length is 0 at the end of the file. A record that is too long is scanned
 * and dropped. `*broken`: the column of a character after a closing quote, or 0; of a broken record only the first line
 * is returned. */
static enum status next_record(struct source *source, char separator, struct record *out, size_t *broken,
                               struct err *err)
{
    struct reader *reader = &source->reader;
    struct csv_scan scan = {0};
    size_t held = 0, scanned = 0, most = reader->limit + 2; /* with its line end */
    uint64_t line = reader->line + 1, taken = 0;
    *broken = 0;
    for (;;) {
        struct record ahead = reader_ahead(reader);
        size_t left = ahead.length - held;
        size_t used = left == 0 ? 0 : csv_scan(&scan, ahead.bytes + held, left, separator);
        held += used;
        scanned += used;
        if (scan.state == CSV_BROKEN && scanned > most) {
            return fail_quote(source, line, scan.quote,
                              "is closed too far away, and a letter stands behind the closing one", err);
        }
        if (scan.state == CSV_BROKEN) {
            *broken = scanned;
            return reader_line(reader, out, err);
        }
        if (scan.state != CSV_DONE && !reader->ended && scanned > most) {
            reader_take(reader, held, scan.here.line - taken);
            taken = scan.here.line;
            held = 0;
        }
        if (scan.state != CSV_DONE && !reader->ended) {
            TRY(reader_more(reader, err));
            continue;
        }
        if (scan.state == CSV_QUOTED) { return fail_quote(source, line, scan.quote, "is never closed", err); }
        *out = ahead;
        out->line = line;
        out->length = csv_content(ahead.bytes, held);
        out->too_large = scanned > most || out->length > reader->limit;
        reader_take(reader, held, scan.here.line - taken);
        if (out->length > 0 || out->too_large || scan.state != CSV_DONE) { return STATUS_OK; }
        scan = (struct csv_scan){0}; /* an empty line */
        held = scanned = taken = 0;
        line = reader->line + 1;
    }
}

/* Lists the first columns of the header, for a message. */
static void list_columns(const struct csv_fields *fields, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < fields->count && used < size; i++) {
        int length = (int)(fields->values[i].length < 40 ? fields->values[i].length : 40);
        used += (size_t)snprintf(out + used, size - used, "%s\"%.*s\"", i == 0 ? "" : ", ", length,
                                 fields->values[i].bytes);
    }
}

/* Refuses a header of one column in which another separator is found, as spreadsheets write it in much of Europe. */
static enum status refuse_separator(const struct source *source, struct err *err)
{
    const struct value *only = &source->fields.values[0];
    if (memchr(only->bytes, '\t', only->length)) {
        return err_set(err, STATUS_BAD_INPUT, "%s line 1: tabs separate its columns: --format tsv reads it",
                       source->file.path);
    }
    char separator = memchr(only->bytes, ';', only->length) ? ';' : memchr(only->bytes, '|', only->length) ? '|' : '\0';
    if (separator == '\0') { return STATUS_OK; }
    return err_set(
        err, STATUS_BAD_INPUT,
        "%s line 1: '%c' separates its columns, and only a comma or a tab is read: python3 -c \"import csv, "
        "sys; csv.writer(sys.stdout).writerows(csv.reader(sys.stdin, delimiter='%c'))\" < FILE | sluice embed "
        "- --format csv",
        source->file.path, separator, separator);
}

/* Finds the columns of the recipe's fields. */
static enum status bind_columns(struct source *source, struct err *err)
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
                                                     memcmp(names[column].bytes, name, names[column].length) != 0)) {
                column++;
            }
        }
        if (column >= source->fields.count && source->options.headerless) {
            return err_set(err, STATUS_BAD_INPUT,
                           "%s line 1: no column \"%s\"; without a header columns are called 1 to %u",
                           source->file.path, name, source->fields.count);
        }
        if (column >= source->fields.count && source->fields.count == 1) { TRY(refuse_separator(source, err)); }
        if (column >= source->fields.count) {
            char there[200];
            list_columns(&source->fields, there, sizeof there);
            return err_set(err, STATUS_BAD_INPUT,
                           "%s line 1: no column \"%s\" in its header; there are: %s (--no-header if "
                           "this is a row)",
                           source->file.path, name, there);
        }
        source->columns[f] = column;
    }
    source->column_count = source->fields.count;
    char kind[240];
    size_t used =
        (size_t)snprintf(kind, sizeof kind, "%s with the columns ", source->format == FORMAT_TSV ? "TSV" : "CSV");
    list_columns(&source->fields, kind + used, sizeof kind - used);
    note_file(source, kind, NULL, 0);
    return STATUS_OK;
}

static enum status make_row(struct source *source, struct document *out, struct err *err)
{
    const struct recipe *recipe = source->options.recipe;
    struct value values[RECIPE_FIELDS_MAX];
    if (source->fields.count != source->column_count) {
        fail_document(source, out, ROW_BAD_CSV, "%u fields, where the first line has %u", source->fields.count,
                      source->column_count);
        return STATUS_OK;
    }
    for (uint32_t f = 0; f < recipe->field_count; f++) { values[f] = source->fields.values[source->columns[f]]; }
    return recipe_make(recipe, values, &source->scratch, out, err);
}

/* The whole record must be UTF-8: fields that are passed on become JSON. */
static bool check_record(struct source *source, const struct record *record, size_t broken, struct document *out)
{
    size_t valid = record->too_large ? 0 : utf8_valid_prefix(record->bytes, record->length);
    if (!record->too_large && broken == 0 && valid == record->length) { return true; }
    if (record->too_large) {
        fail_document(source, out, ROW_TOO_LARGE, "the record is longer than 8 times --max-text-bytes");
    } else if (broken > 0) {
        fail_document(source, out, ROW_BAD_CSV, "a letter behind a closing quote at column %zu", broken);
    } else {
        fail_document(source, out, ROW_BAD_UTF8, "not UTF-8 at byte %zu of the record", valid + 1);
    }
    return false;
}

static enum status read_csv(struct source *source, struct document *out, bool *found, struct err *err)
{
    char separator = source->format == FORMAT_TSV ? '\t' : ',';
    for (;;) {
        struct record record;
        size_t broken;
        TRY(next_record(source, separator, &record, &broken, err));
        *found = record.length > 0 || record.too_large;
        out->line = record.line;
        bool header = source->column_count == 0 && !source->options.headerless;
        if (!*found || (!check_record(source, &record, broken, out) && !header)) { return STATUS_OK; }
        if (out->code != ROW_OK) {
            return err_set(err, STATUS_BAD_INPUT, "%s line %llu: the header: %.*s", source->file.path,
                           (unsigned long long)record.line, (int)out->message_bytes, out->message);
        }
        TRY(csv_split(record.bytes, record.length, separator, &source->fields, err));
        if (source->column_count == 0) { TRY(bind_columns(source, err)); }
        if (!header) { return make_row(source, out, err); }
    }
}

/* --- The source --- */

const char *const source_format_names[] = {
    [FORMAT_AUTO] = "auto", [FORMAT_LINES] = "lines",       [FORMAT_JSONL] = "jsonl",     [FORMAT_CSV] = "csv",
    [FORMAT_TSV] = "tsv",   [FORMAT_DOCUMENT] = "document", [FORMAT_DOCUMENT + 1] = NULL,
};

/* "a/b.jsonl.gz" and "a/b.JSONL" have the ending ".jsonl". */
static bool has_ending(const char *path, const char *ending)
{
    static const char *const packed[] = {".gz", ".zst", ".xz", ".bz2", ".lz4", ".lz"};
    size_t length = strlen(path), end = strlen(ending);
    for (size_t i = 0; i < sizeof packed / sizeof packed[0]; i++) {
        size_t more = strlen(packed[i]);
        if (length > more && strcasecmp(path + length - more, packed[i]) == 0) {
            length -= more;
            break;
        }
    }
    return length >= end && strncasecmp(path + length - end, ending, end) == 0;
}

static enum source_format format_by_name(const char *path)
{
    bool json = has_ending(path, ".jsonl") || has_ending(path, ".ndjson") || has_ending(path, ".json");
    return json                       ? FORMAT_JSONL
           : has_ending(path, ".csv") ? FORMAT_CSV
           : has_ending(path, ".tsv") ? FORMAT_TSV
                                      : FORMAT_AUTO;
}

static enum source_format format_of(const struct source_options *options, const struct file_name *file)
{
    if (options->records) { return FORMAT_JSONL; }
    bool named_so = options->format == FORMAT_AUTO && !options->lines_only;
    enum source_format format = named_so ? format_by_name(file->path) : options->format;
    return format != FORMAT_AUTO ? format : file->in_folder ? FORMAT_DOCUMENT : FORMAT_LINES;
}

static const char *shown_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

/* Refuses options that have no meaning for such a file. */
static enum status check_options(const struct source_options *options, const struct file_name *file, struct err *err)
{
    enum source_format format = format_of(options, file);
    bool plain = format == FORMAT_LINES || format == FORMAT_DOCUMENT;
    bool columns = format == FORMAT_CSV || format == FORMAT_TSV;
    const char *option = plain ? options->recipe->option : NULL;
    if (!columns && options->headerless) { option = "--no-header"; }
    if (!option) { return STATUS_OK; }
    if (options->lines_only) {
        return err_set(err, STATUS_BAD_INPUT, "%s: without INPUT each line is a text; sluice embed %s reads fields",
                       option, strcmp(file->path, "-") == 0 ? "- --format jsonl" : file->path);
    }
    return err_set(err, STATUS_BAD_INPUT, "%s: %s is read as %s; --format says what it is: jsonl, csv, tsv", option,
                   shown_name(file->path),
                   format == FORMAT_LINES      ? "lines, each a text"
                   : format == FORMAT_DOCUMENT ? "one text"
                                               : "JSON");
}

static enum status look_inside(struct source *source, struct err *err);

/* Looks at the content of a file before anything is computed. */
static enum status peek_file(struct source *source, const struct file_name *file, struct err *err)
{
    source->file = *file;
    source->format = format_of(&source->options, file);
    TRY(reader_open(&source->reader, file->path, SNIFF_BYTES, NULL, err));
    enum status status = look_inside(source, err);
    reader_close(&source->reader);
    source->reader = (struct reader){0};
    source->file.path = NULL;
    return status;
}

/* Checks all names before anything is computed. */
static enum status check_names(struct source *source, struct err *err)
{
    const struct source_options *options = &source->options;
    struct operands operands;
    struct file_name file = {0};
    bool option = options->recipe && (options->recipe->option || options->headerless);
    if (!option && !options->lines_only) { return STATUS_OK; }
    TRY(operands_open(&operands, options->operands, options->operand_count, options->glob, err));
    enum status status;
    while ((status = operands_next(&operands, &file, err)) == STATUS_OK && file.path) {
        struct stat info; /* a pipe can be read only once */
        bool seen = !file.in_folder && stat(file.path, &info) == 0 && S_ISREG(info.st_mode);
        if (option) { status = check_options(options, &file, err); }
        if (seen && (options->lines_only || status != STATUS_OK)) {
            struct err why;
            enum status inside = peek_file(source, &file, &why); /* its kind says more than its name */
            if (inside != STATUS_OK) {
                *err = why;
                status = inside;
            }
        }
        if (status != STATUS_OK) { break; }
    }
    operands_close(&operands);
    return status;
}

/* A link counts as well as the file that it leads to: a job deletes a link by its own name. */
static bool is_among(const char *path, const struct file_id *files, size_t count)
{
    bool standard = strcmp(path, "-") == 0, there[2];
    struct stat info[2];
    there[0] = (standard ? fstat(STDIN_FILENO, &info[0]) : stat(path, &info[0])) == 0 && S_ISREG(info[0].st_mode);
    there[1] = !standard && lstat(path, &info[1]) == 0 && S_ISLNK(info[1].st_mode);
    for (size_t i = 0; i < 2 * count; i++) {
        const struct stat *one = &info[i % 2];
        if (there[i % 2] && one->st_dev == files[i / 2].device && one->st_ino == files[i / 2].inode) { return true; }
    }
    return false;
}

enum status source_refuse(const struct source_options *options, const struct file_id *ids, size_t count,
                          struct err *err)
{
    struct operands operands = {.paths = options->operands, .count = options->operand_count, .glob = options->glob};
    struct file_name file = {0};
    enum status status = STATUS_OK;
    while (count > 0 && (status = operands_next(&operands, &file, err)) == STATUS_OK && file.path) {
        if (is_among(file.path, ids, count)) {
            status = err_set(err, STATUS_BAD_INPUT,
                             "%s is an input, and a file that this job would write or delete; name another --output",
                             shown_name(file.path));
            break;
        }
    }
    operands_close(&operands);
    return status;
}

enum status source_open(const struct source_options *options, struct source **out, struct err *err)
{
    struct source *source = calloc(1, sizeof *source);
    if (!source) { return err_set(err, STATUS_NO_MEMORY, "no memory for the input"); }
    source->options = *options;
    enum status status = check_names(source, err);
    if (status == STATUS_OK) {
        status = operands_open(&source->operands, options->operands, options->operand_count, options->glob, err);
    }
    if (status == STATUS_OK && options->recipe && options->recipe->has_id) {
        status = dedup_open(DEDUP_ROWS_DEFAULT, &source->ids, err);
    }
    if (status != STATUS_OK) {
        free(source);
        return status;
    }
    *out = source;
    return STATUS_OK;
}

void source_watch(struct source *source, const volatile sig_atomic_t *stop)
{
    source->options.stop = stop;
    if (source->reader.stream) { stream_watch(source->reader.stream, stop); }
}

size_t source_record_bytes(const struct source_options *options)
{
    enum { FACTOR = 8, EXTRA = 1 << 16 };
    return options->max_text_bytes * FACTOR + EXTRA;
}

static void close_file(struct source *source)
{
    if (source->reader.stream) {
        source->read_bytes += stream_raw_bytes(source->reader.stream);
        reader_close(&source->reader);
    }
    source->file.path = NULL;
}

void source_close(struct source *source)
{
    if (!source) { return; }
    close_file(source);
    operands_close(&source->operands);
    dedup_close(source->ids);
    recipe_scratch_free(&source->scratch);
    free(source->fields.values);
    buffer_free(&source->said);
    buffer_free(&source->first_said);
    buffer_free(&source->first_place);
    buffer_free(&source->there);
    buffer_free(&source->files_said);
    free(source);
}

double source_share(const struct source *source)
{
    uint64_t total = source->operands.total_bytes;
    uint64_t read = source->read_bytes + (source->reader.stream ? stream_raw_bytes(source->reader.stream) : 0);
    double share = total == 0 ? -1 : read < total ? (double)read / (double)total : 1;
    double counted = source->options.limit > 0 ? (double)source->documents / (double)source->options.limit : -1;
    return counted > share ? counted : share;
}

uint64_t source_duplicates(const struct source *source)
{
    return source->duplicates;
}

const char *source_first_duplicate(const struct source *source)
{
    return source->first_duplicate;
}

const struct buffer *source_files(const struct source *source)
{
    return &source->files_said;
}

static bool is_plain_name(const char *path)
{
    for (; *path != '\0'; path++) {
        if (!memchr("/._-+@", *path, 6) && !(*path >= '0' && *path <= '9') && !(*path >= 'A' && *path <= 'Z') &&
            !(*path >= 'a' && *path <= 'z')) {
            return false;
        }
    }
    return true;
}

/* Says what the file is, and the way to get texts out of it, in which FILE stands for the file's name, and AS for its
 * format. */
static enum status refuse_kind(const struct source *source, const char *name, const char *way, struct err *err)
{
    const char *path = source->file.path;
    bool known = strcmp(path, "-") != 0 && is_plain_name(path);
    enum source_format format = source->options.format;
    if (format == FORMAT_AUTO) { format = format_by_name(path); }
    struct buffer text = {0};
    for (const char *at = way; *at != '\0';) {
        size_t file = strncmp(at, "FILE", 4) == 0 ? 4 : 0, as = strncmp(at, "AS", 3) == 0 ? 2 : 0;
        if (file > 0) { buffer_string(&text, known ? path : "FILE"); }
        if (as > 0 && format != FORMAT_AUTO) { buffer_format(&text, " --format %s", source_format_names[format]); }
        if (file + as == 0) { buffer_append(&text, at, 1); }
        at += file + as > 0 ? file + as : 1;
    }
    bool whole = buffer_ok(&text);
    err_set(err, STATUS_BAD_INPUT, "%s is %s, which is not read; %.*s", shown_name(path), name,
            whole ? (int)text.length : 0, whole ? text.data : "");
    buffer_free(&text);
    return STATUS_BAD_INPUT;
}

/* Looks at the file's content: its name may be wrong, or say nothing. */
static enum status look_inside(struct source *source, struct err *err)
{
    struct reader *reader = &source->reader;
    const char *path = source->file.path, *name = NULL, *way = NULL;
    while (!reader->ended && reader_ahead(reader).length < SNIFF_BYTES) { TRY(reader_more(reader, err)); }
    struct record ahead = reader_ahead(reader);
    size_t length = ahead.length < SNIFF_BYTES ? ahead.length : SNIFF_BYTES;
    enum sniffed kind = length > 0 ? sniff(ahead.bytes, length, &name, &way) : SNIFF_TEXT;
    bool guessed = source->options.format == FORMAT_AUTO && source->format == FORMAT_LINES;
    bool table = source->options.lines_only && guessed && format_by_name(path) != FORMAT_AUTO;
    bool json = guessed && kind != SNIFF_TEXT && !has_ending(path, ".txt") && !has_ending(path, ".md");
    source->array = NO_ARRAY;
    if (kind == SNIFF_OTHER) { return refuse_kind(source, name, way, err); }
    if (source->options.records) { return STATUS_OK; }
    if (source->options.lines_only && (table || json)) {
        return err_set(err, STATUS_BAD_INPUT,
                       "%s looks like %s: sluice embed %s reads its fields, --format lines takes each line as a text",
                       shown_name(path), table ? source_format_names[format_by_name(path)] : "JSON",
                       strcmp(path, "-") == 0 ? "- --format jsonl" : path);
    }
    if (json) {
        return err_set(err, STATUS_BAD_INPUT,
                       "%s looks like JSON: --format jsonl reads its fields, --format lines takes each line as a text",
                       shown_name(path));
    }
    if (source->format == FORMAT_JSONL && kind == SNIFF_JSON_SPREAD) {
        return refuse_kind(source, "a JSON object over several lines",
                           "an array of objects is, and an object a line: jq -c . FILE | sluice embed - --format jsonl",
                           err);
    }
    if (source->format == FORMAT_JSONL && kind == SNIFF_JSON_ARRAY) { source->array = ARRAY_BEGIN; }
    return STATUS_OK;
}

/* The id of a file that is one document is its name. */
static void put_name(struct source *source, struct document *out)
{
    source->scratch.id.length = 0;
    buffer_json_string(&source->scratch.id, out->file, strlen(out->file));
    out->id = source->scratch.id.data;
    out->id_bytes = source->scratch.id.length;
}

/* Opens the next file; `source->file.path` is NULL at the end. A file of a folder that cannot be opened, or is of a
 * kind that is not read, becomes a failed document. */
static enum status open_next(struct source *source, struct document *out, struct err *err)
{
    TRY(operands_next(&source->operands, &source->file, err));
    if (!source->file.path) { return STATUS_OK; }
    source->format = format_of(&source->options, &source->file);
    source->column_count = 0;
    source->noted = false;
    size_t limit = source->options.max_text_bytes;
    bool table = source->format == FORMAT_JSONL || source->format == FORMAT_CSV || source->format == FORMAT_TSV;
    if (table) { limit = source_record_bytes(&source->options); }
    struct err why;
    enum status status = reader_open(&source->reader, source->file.path, limit, source->options.stop, &why);
    bool opened = status == STATUS_OK;
    if (opened) { status = look_inside(source, &why); }
    if (status == STATUS_OK) { return STATUS_OK; }
    if (opened) { reader_close(&source->reader); }
    source->reader.stream = NULL;
    if (!source->file.in_folder || (status != STATUS_BAD_INPUT && opened) || status == STATUS_NO_MEMORY) {
        *err = why;
        return status;
    }
    *out = (struct document){.file = source->file.path, .line = 1};
    put_name(source, out);
    fail_document(source, out, ROW_UNREADABLE, "%s", why.message);
    return STATUS_OK;
}

static enum status read_line(struct source *source, struct document *out, bool *found, struct err *err)
{
    struct record record;
    TRY(reader_line(&source->reader, &record, err));
    *found = record.bytes;
    note_file(source, "lines", NULL, 0);
    out->text = record.bytes;
    out->text_bytes = record.length;
    out->line = record.line;
    if (record.too_large) { fail_document(source, out, ROW_TOO_LARGE, "%s", failure_text(ROW_TOO_LARGE)); }
    return STATUS_OK;
}

static enum status read_record(struct source *source, struct document *out, bool *found, struct err *err)
{
    const struct records *records = source->options.records;
    struct record record;
    TRY(next_json(source, &record, err));
    *found = record.bytes;
    out->line = record.line;
    if (!*found) { return STATUS_OK; }
    return records->read(records->context, record.too_large ? NULL : record.bytes, record.length, out, err);
}

static enum status read_document(struct source *source, struct document *out, bool *found, struct err *err)
{
    struct record record;
    TRY(reader_whole(&source->reader, &record, err));
    *found = record.bytes || record.line > 0;
    note_file(source, "one text", NULL, 0);
    out->text = record.bytes ? record.bytes : "";
    out->text_bytes = record.length;
    out->line = 1;
    if (record.too_large) { fail_document(source, out, ROW_TOO_LARGE, "%s", failure_text(ROW_TOO_LARGE)); }
    put_name(source, out);
    return STATUS_OK;
}

static enum status read_next(struct source *source, struct document *out, bool *found, struct err *err)
{
    *out = (struct document){.file = source->file.path};
    if (source->options.records) { return read_record(source, out, found, err); }
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

/* Checks a text, whatever its format. */
static void check_text(struct source *source, struct document *out)
{
    if (out->code != ROW_OK || source->options.records) { return; }
    size_t valid = utf8_valid_prefix(out->text, out->text_bytes);
    if (out->text_bytes > source->options.max_text_bytes) {
        fail_document(source, out, ROW_TOO_LARGE, "%s", failure_text(ROW_TOO_LARGE));
    } else if (valid < out->text_bytes) {
        fail_document(source, out, ROW_BAD_UTF8, "not UTF-8 at byte %zu; convert the file first (iconv)", valid + 1);
    } else if (out->text_bytes == 0 && !source->options.empty_texts) {
        fail_document(source, out, ROW_EMPTY_TEXT, "%s", failure_text(ROW_EMPTY_TEXT));
    }
}

enum status source_check_fields(const struct source *source, struct err *err)
{
    const struct buffer *place = &source->first_place, *said = &source->first_said, *there = &source->there;
    if (source->usable || source->judged == 0 || !buffer_ok(place) || !buffer_ok(said) || !buffer_ok(there)) {
        return STATUS_OK;
    }
    return err_set(err, STATUS_BAD_INPUT,
                   "%.*s: %.*s, as in all rows that parse (%llu); there %s%.*s: name others with --field, --template "
                   "or --id-field",
                   (int)place->length, place->data, (int)said->length, said->data, (unsigned long long)source->judged,
                   there->length > 0 ? "are: " : "is no field", (int)there->length,
                   there->length > 0 ? there->data : "");
}

/* Passes on the text of a line or file, which has no fields. */
static void keep_text(struct source *source, struct document *out)
{
    struct buffer *kept = &source->scratch.kept;
    if (!source->options.recipe || !source->options.recipe->keeps_text || source->format == FORMAT_JSONL ||
        source->format == FORMAT_CSV || source->format == FORMAT_TSV) {
        return;
    }
    kept->length = 0;
    buffer_json(kept, ",'text':");
    if (out->code == ROW_OK) {
        buffer_json_string(kept, out->text, out->text_bytes);
    } else {
        buffer_string(kept, "null");
    }
    out->kept = kept->data;
    out->kept_bytes = kept->length;
}

static void count_duplicate(struct source *source, const struct document *document)
{
    if (!source->ids || !document->id) { return; }
    XXH128_hash_t digest = XXH3_128bits(document->id, document->id_bytes);
    struct hash hash = {digest.low64, digest.high64};
    if (dedup_find(source->ids, hash).row == DEDUP_NONE) {
        dedup_put(source->ids, hash, (struct dedup_entry){.row = document->number});
    } else if (source->duplicates++ == 0) {
        int shown = (int)utf8_valid_prefix(document->id, document->id_bytes < 60 ? document->id_bytes : 60);
        snprintf(source->first_duplicate, sizeof source->first_duplicate, "%.*s in %s line %llu", shown, document->id,
                 shown_name(document->file), (unsigned long long)document->line);
    }
}

static void give_out(struct source *source, struct document *out)
{
    check_text(source, out);
    keep_text(source, out);
    out->number = source->documents++;
    out->lacks_id = source->ids && !out->id;
    count_duplicate(source, out);
    if (out->code == ROW_OK) {
        XXH128_hash_t hash = XXH3_128bits(out->text, out->text_bytes);
        out->hash = (struct hash){hash.low64, hash.high64};
    }
}

enum status source_next(struct source *source, struct document *out, bool *more, struct err *err)
{
    *out = (struct document){0};
    *more = false;
    if (source->options.limit > 0 && source->documents == source->options.limit) { return STATUS_OK; }
    for (;;) {
        if (!source->reader.stream) {
            TRY(open_next(source, out, err));
            *more = source->file.path;
            if (!*more) { return STATUS_OK; }
            if (out->code != ROW_OK) { break; }
        }
        TRY(read_next(source, out, more, err));
        if (*more) { break; }
        close_file(source);
    }
    give_out(source, out);
    return STATUS_OK;
}
