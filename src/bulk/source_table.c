/* The records of tables: a JSON object a line, or CSV; the recipe makes documents of their fields. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "bulk/json_pick.h"
#include "bulk/source_state.h"

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
    if (problem == JSON_PICK_NOT_OBJECT)
        source_fail(source, out, said[problem].code, "%s", said[problem].text);
    else
        source_fail(source, out, said[problem].code, "%s at byte %zu of the line", said[problem].text, at + 1);
}

static bool is_blank(const struct record *record)
{
    for (size_t i = 0; i < record->length; i++)
        if (record->bytes[i] != ' ' && record->bytes[i] != '\t')
            return false;
    return !record->too_large;
}

enum status source_read_json(struct source *source, struct document *out, bool *found, struct err *err)
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
        source_fail(source, out, ROW_TOO_LARGE, "the line is longer than 8 times --max-text-bytes");
        return STATUS_OK;
    }
    enum json_pick_problem problem =
        json_pick(record.bytes, record.length, recipe->fields, recipe->field_count, values, &at);
    if (problem == JSON_PICK_OK)
        return recipe_make(recipe, values, &source->scratch, out, err);
    fail_json(source, out, problem, at);
    return STATUS_OK;
}

/* The file is broken, and not a record of it: what is behind the quote cannot be told apart. */
static enum status fail_quote(const struct source *source, uint64_t line, struct csv_place quote, const char *what,
                              struct err *err)
{
    return err_set(err, STATUS_BAD_INPUT, "%s line %llu: the quote at column %llu %s",
                   stream_name(source->reader.stream), (unsigned long long)(line + quote.line),
                   (unsigned long long)quote.column, what);
}

/* Drops a record that is too long to be held. */
static enum status skip_record(struct source *source, char separator, struct record *out, struct err *err)
{
    static char nothing[1];
    struct reader *reader = &source->reader;
    struct csv_skip skip = {0};
    *out = (struct record){.bytes = nothing, .line = reader->line + 1, .too_large = true};
    for (;;) {
        struct record ahead = reader_ahead(reader);
        uint64_t lines = skip.here.line;
        size_t used = csv_skip(&skip, ahead.bytes, ahead.length, separator);
        reader_take(reader, used, skip.here.line - lines);
        if (skip.state == CSV_BROKEN) {
            return fail_quote(source, out->line, skip.quote,
                              "is closed too far away, and a letter stands behind the closing one", err);
        }
        if (skip.state == CSV_DONE || (reader->ended && skip.state != CSV_QUOTED)) {
            return STATUS_OK;
        }
        if (reader->ended) {
            return fail_quote(source, out->line, skip.quote, "is never closed", err);
        }
        TRY(reader_more(reader, err));
    }
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
        size_t most = reader->limit + 2; /* with its line end: what is made of a record does not depend on pieces */
        bool all = out->length <= most;
        if (csv_find(out->bytes, all ? out->length : most, all && reader->ended, separator, found)) {
            if (found->open)
                return fail_quote(source, out->line, found->quote, "is never closed", err);
            reader_take(reader, found->length, found->lines);
            out->length = found->content;
            out->too_large = found->content > reader->limit;
            if (out->length > 0 || found->broken)
                return STATUS_OK;
            continue; /* an empty line */
        }
        if (!all)
            return skip_record(source, separator, out, err);
        TRY(reader_more(reader, err));
    }
}

/* The first columns of the header, as a message names them. */
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
        if (column >= source->fields.count && source->options.headerless)
            return err_set(err, STATUS_BAD_INPUT,
                           "%s line 1: no column \"%s\"; without a header columns are called 1 to %u",
                           source->file.path, name, source->fields.count);
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
    return STATUS_OK;
}

static enum status make_row(struct source *source, struct document *out, struct err *err)
{
    const struct recipe *recipe = source->options.recipe;
    struct value values[RECIPE_FIELDS_MAX];
    if (source->fields.count != source->column_count) {
        source_fail(source, out, ROW_BAD_CSV, "%u fields, where the first line has %u", source->fields.count,
                    source->column_count);
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
    if (record->too_large)
        source_fail(source, out, ROW_TOO_LARGE, "the record is longer than 8 times --max-text-bytes");
    else if (found->broken)
        source_fail(source, out, ROW_BAD_CSV, "a letter behind a closing quote at column %zu", found->column);
    else
        source_fail(source, out, ROW_BAD_UTF8, "not UTF-8 at byte %zu of the record", valid + 1);
    return false;
}

enum status source_read_csv(struct source *source, struct document *out, bool *found, struct err *err)
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
