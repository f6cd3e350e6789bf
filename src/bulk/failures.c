/* Writes, parses and replaces the list of failures. */
#include "bulk/failures.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "bulk/job_internal.h"

/* Parses `name` and a number at the front of a line. */
static bool take_number(const char **at, const char *end, const char *name, uint64_t *out)
{
    char number[24] = "";
    size_t length = strlen(name), digits = 0;
    if ((size_t)(end - *at) < length || memcmp(*at, name, length) != 0) { return false; }
    for (*at += length; *at < end && digits < 20 && **at >= '0' && **at <= '9'; ++*at) { number[digits++] = **at; }
    *out = strtoull(number, NULL, 10);
    return digits > 0;
}

void job_put_id(struct buffer *to, const struct document *document)
{
    if (document->lacks_id) {
        buffer_string(to, "null");
    } else if (document->id) {
        buffer_append(to, document->id, document->id_bytes);
    } else {
        buffer_format(to, "%llu", (unsigned long long)document->number);
    }
}

/* The members that a retry needs come first: see parse_failure. */
void job_put_failure(struct buffer *to, const struct output_row *row, bool chunks)
{
    const struct document *document = row->document;
    buffer_json(to, "{'row':%" PRIu64, row->number);
    if (chunks) { buffer_json(to, ",'document':%" PRIu64 ",'chunk':%u", document->number, row->chunk); }
    buffer_json(to, ",'id':");
    job_put_id(to, document);
    buffer_json(to, ",'file':'%s','line':%" PRIu64 ",'code':%s,'message':", document->file, document->line,
                failure_name(row->code));
    const char *text = failure_text(row->code);
    bool unread = document->code != ROW_OK;
    buffer_json(to, "%.*s}\n", (int)(unread ? document->message_bytes : strlen(text)),
                unread ? document->message : text);
}

/* Parses a line that job_put_failure wrote: {"row":12,...,"code":"bad_utf8",... */
static bool parse_failure(const struct record *line, bool chunks, struct listed *out)
{
    const char *at = line->bytes, *end = line->bytes + line->length;
    if (!take_number(&at, end, "{\"row\":", &out->row)) { return false; }
    out->document = out->row;
    out->chunk = 0;
    if (chunks && (!take_number(&at, end, ",\"document\":", &out->document) ||
                   !take_number(&at, end, ",\"chunk\":", &out->chunk))) {
        return false;
    }
    out->unread = true;
    static const enum row_code computed[] = {ROW_NON_FINITE, ROW_F16_RANGE, ROW_NO_TOKENS, ROW_REFUSED};
    for (size_t i = 0; i < sizeof computed / sizeof computed[0]; i++) {
        char code[48];
        int length = snprintf(code, sizeof code, ",\"code\":\"%s\",\"message\":", failure_name(computed[i]));
        out->unread = out->unread && !memmem(line->bytes, line->length, code, (size_t)length);
    }
    return out->chunk <= out->row;
}

enum status failure_list_next(const struct job *job, struct failure_list *list, struct err *err)
{
    struct listed listed = {.row = UINT64_MAX, .document = UINT64_MAX};
    TRY(reader_line(&list->reader, &list->line, err));
    bool first = list->reader.line <= 1;
    if (list->line.bytes &&
        (!parse_failure(&list->line, job_has_chunks(job), &listed) || (!first && listed.row <= list->next.row))) {
        return err_set(err, STATUS_BAD_INPUT, "%s line %llu is not what this job wrote; --overwrite begins again",
                       job->options->output->failures, (unsigned long long)list->line.line);
    }
    list->next = listed;
    return STATUS_OK;
}

enum status failure_list_adopt(const struct output *output, const char *new_list, uint64_t failed, struct err *err)
{
    if (failed > 0 && rename(new_list, output->failures) != 0) {
        return err_set_errno(err, "cannot write %s", output->failures);
    }
    if (failed == 0) {
        TRY(job_remove_file(output->failures, err));
        TRY(job_remove_file(new_list, err));
    }
    return file_sync_folder(output->failures, err);
}

enum status failure_list_settle(const struct output *output, const struct manifest *manifest, struct err *err)
{
    char hex[SHA256_HEX], *new_list = job_new_path(output->failures);
    uint64_t size;
    struct err ignored;
    enum status status = STATUS_OK;
    if (!new_list) { return err_set(err, STATUS_NO_MEMORY, "no memory for the names of the output"); }
    if (!job_file_exists(new_list) && (manifest->at.failed > 0 || !job_file_exists(output->failures))) {
        free(new_list);
        return STATUS_OK;
    }
    if (manifest->at.failed == 0 ||
        (manifest_hash(new_list, hex, &size, &ignored) == STATUS_OK && strcmp(hex, manifest->failures) == 0)) {
        status = failure_list_adopt(output, new_list, manifest->at.failed, err);
    } else {
        status = job_remove_file(new_list, err);
    }
    free(new_list);
    return status;
}
