/* Makes digests of the input, and compares documents with those of an earlier run by their fingerprints. */
#include "bulk/digest.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void job_digest_add(XXH3_state_t *digest, const struct document *document)
{
    bool good = document->code == ROW_OK;
    uint64_t head[] = {good, document->id_bytes, document->kept_bytes, document->hash.low, document->hash.high};
    XXH3_128bits_update(digest, head, good ? sizeof head : sizeof head[0]);
    if (good && document->id_bytes > 0) { XXH3_128bits_update(digest, document->id, document->id_bytes); }
    if (good && document->kept_bytes > 0) { XXH3_128bits_update(digest, document->kept, document->kept_bytes); }
}

struct fingerprint job_fingerprint(const struct document *document)
{
    struct fingerprint now = {0};
    if (document->id_bytes > 0) { now.id = XXH3_64bits(document->id, document->id_bytes); }
    if (document->code != ROW_OK) { return now; }
    XXH64_hash_t kept = XXH3_64bits(document->kept, document->kept_bytes);
    now.content = XXH3_64bits_withSeed(&document->hash, sizeof document->hash, kept) & ~(uint64_t)FINGERPRINT_COPIED;
    if (now.content == 0) { now.content = ~(uint64_t)FINGERPRINT_COPIED; }
    return now;
}

struct hash job_digest_now(const struct job *job)
{
    XXH128_hash_t hash = XXH3_128bits_digest(job->digest);
    return (struct hash){hash.low64, hash.high64};
}

enum status comparison_open(const struct job *job, uint64_t documents, uint64_t failed, struct comparison *with,
                            struct err *err)
{
    const struct output *output = job->options->output;
    struct stat info;
    with->list.next = (struct listed){.row = UINT64_MAX, .document = UINT64_MAX};
    if (job->options->plain) { return STATUS_OK; }
    with->new_path = job_new_path(output->failures);
    if (!with->new_path) { return err_set(err, STATUS_NO_MEMORY, "no memory for the names of the output"); }
    with->hashes = fopen(output->hashes, "rbe");
    if (with->hashes &&
        (fstat(fileno(with->hashes), &info) != 0 || (uint64_t)info.st_size < job_pairs_end(APPEND_HASHES, documents))) {
        fclose(with->hashes);
        with->hashes = NULL;
    }
    if (failed == 0) { return STATUS_OK; }
    TRY(reader_open(&with->list.reader, output->failures, LINE_MAX_BYTES, NULL, err));
    return failure_list_next(job, &with->list, err);
}

void comparison_close(struct comparison *with)
{
    reader_close(&with->list.reader);
    if (with->hashes) { fclose(with->hashes); }
    append_file_close(&with->new_list);
    free(with->new_path);
}

enum status comparison_check(const struct job *job, struct comparison *with, const struct document *document,
                             bool *changed, struct err *err)
{
    struct fingerprint then, now = job_fingerprint(document);
    *changed = false;
    if (!with->hashes) { return STATUS_OK; }
    if (fread(&then, sizeof then, 1, with->hashes) != 1) {
        return err_set_errno(err, "cannot read %s", job->options->output->hashes);
    }
    if (document->number == with->list.next.document && with->list.next.unread) { return STATUS_OK; }
    bool copied = then.content & FINGERPRINT_COPIED, same_id = then.id == now.id, fails = now.content == 0;
    then.content &= ~(uint64_t)FINGERPRINT_COPIED;
    *changed = then.content != now.content || !(same_id || fails);
    with->copied += copied && !*changed;
    bool placed = same_id || (fails && now.id == 0);
    if (!*changed || (!with->obstacle && placed)) { return STATUS_OK; }
    const char *why =
        with->obstacle ? with->obstacle : "; only rows whose ids are in their old places are computed again";
    return err_set(err, STATUS_BAD_INPUT,
                   "%s line %llu: the input has changed since this job began: document %llu has %s%s; --overwrite "
                   "begins again",
                   job_file_of(document), (unsigned long long)document->line, (unsigned long long)document->number,
                   placed ? "changed" : "another id", why);
}

/* Writes the document's line of the new list, if it has one. The file is opened when there is something to write. */
static enum status list_again(struct job *job, struct comparison *with, const struct document *document, bool changed,
                              struct err *err)
{
    struct buffer *to = &with->new_list.pending;
    if (changed) {
        struct document read = *document;
        read.code = ROW_OK; /* the line only says that it has changed */
        job_put_failure(to, &(struct output_row){.number = document->number, .document = &read, .code = ROW_CHANGED},
                        false);
        job->changed++;
    } else if (document->number == with->list.next.document) {
        buffer_append(to, with->list.line.bytes, with->list.line.length);
        buffer_string(to, "\n");
    } else {
        return STATUS_OK;
    }
    with->failed++;
    if (with->new_list.path == NULL && (changed || to->length > 1 << 20)) {
        struct buffer pending = *to;
        enum status status = append_file_open(&with->new_list, with->new_path, 0, err);
        *to = pending;
        TRY(status);
    }
    return to->length > 1 << 20 ? append_file_flush(&with->new_list, err) : STATUS_OK;
}

enum status comparison_reread(struct job *job, struct comparison *with, const struct document *document,
                              struct err *err)
{
    bool changed, unread = document->number == with->list.next.document && with->list.next.unread;
    struct document then = *document;
    TRY(comparison_check(job, with, document, &changed, err));
    if (changed || unread) { then.code = ROW_UNREADABLE; }
    job_digest_add(job->digest, &then);
    if (with->lists) { TRY(list_again(job, with, document, changed, err)); }
    while (document->number == with->list.next.document) { TRY(failure_list_next(job, &with->list, err)); }
    return STATUS_OK;
}
