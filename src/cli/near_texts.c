#include "cli/near_texts.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bulk/npy.h"

void near_texts_free(struct near_text *texts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        free(texts[i].text);
        free(texts[i].id);
    }
}

/* The documents of rows that are chunks. */
static enum status read_numbers(int fd, const char *path, const struct nearest *nearest, struct near_text *texts,
                                struct err *err)
{
    char head[NPY_HEADER_BYTES];
    struct npy npy;
    ssize_t got = pread(fd, head, sizeof head, 0);
    TRY(npy_read(head, got > 0 ? (size_t)got : 0, path, &npy, err));
    if (strcmp(npy.type, "<u8") != 0 || npy.dimensions != 1 || npy.shape[0] != nearest->seen)
        return err_set(err, STATUS_BAD_INPUT, "%s does not name a document for each of the %llu rows", path,
                       (unsigned long long)nearest->seen);
    for (uint32_t i = 0; i < nearest->count; i++) {
        off_t at = (off_t)(npy.data + nearest->rows[i].row * sizeof(uint64_t));
        if (pread(fd, &texts[i].document, sizeof texts[i].document, at) != sizeof texts[i].document)
            return err_set(err, STATUS_IO, "cannot read %s", path);
    }
    return STATUS_OK;
}

static enum status find_documents(const struct output *output, const struct nearest *nearest, struct near_text *texts,
                                  bool *chunked, struct err *err)
{
    for (uint32_t i = 0; i < nearest->count; i++)
        texts[i] = (struct near_text){.document = nearest->rows[i].row};
    int fd = open(output->documents, O_RDONLY | O_CLOEXEC);
    *chunked = fd >= 0;
    if (fd < 0)
        return STATUS_OK;
    enum status status = read_numbers(fd, output->documents, nearest, texts, err);
    close(fd);
    return status;
}

/* Room for everything, or nothing. */
static char *copy(const char *bytes, size_t length)
{
    char *to = malloc(length + 1);
    if (to != NULL) {
        memcpy(to, bytes, length);
        to[length] = '\0';
    }
    return to;
}

static enum status keep(struct near_text *text, const struct document *document, struct err *err)
{
    bool has_text = document->code == ROW_OK || document->code == ROW_EMPTY_TEXT;
    if (has_text) {
        text->text =
            copy(document->text == NULL ? "" : document->text, document->text == NULL ? 0 : document->text_bytes);
        text->text_bytes = document->text == NULL ? 0 : document->text_bytes;
    }
    if (document->id != NULL)
        text->id = copy(document->id, document->id_bytes);
    if ((has_text && text->text == NULL) || (document->id != NULL && text->id == NULL))
        return err_set(err, STATUS_NO_MEMORY, "no memory for a text of %zu bytes", document->text_bytes);
    return STATUS_OK;
}

/* One of those that are looked for, with its place in the answer; sorted by document. */
struct wanted {
    uint64_t document;
    uint32_t place;
};

static int by_document(const void *left, const void *right)
{
    const struct wanted *a = left, *b = right;
    return (a->document > b->document) - (a->document < b->document);
}

static enum status read_input(struct source *source, const struct wanted *wanted, uint32_t count,
                              struct near_text *texts, uint64_t *documents, struct err *err)
{
    uint32_t at = 0;
    for (*documents = 0;; ++*documents) {
        struct document document;
        bool more;
        TRY(source_next(source, &document, &more, err));
        if (!more)
            return STATUS_OK;
        for (; at < count && wanted[at].document == *documents; at++)
            TRY(keep(&texts[wanted[at].place], &document, err));
    }
}

enum status near_texts_find(const struct output *output, const struct nearest *nearest, struct source *source,
                            uint64_t documents, struct near_text *texts, struct err *err)
{
    bool chunked;
    TRY(find_documents(output, nearest, texts, &chunked, err));
    if (source == NULL)
        return STATUS_OK;
    if (!chunked)
        documents = nearest->seen;
    struct wanted *wanted = calloc(nearest->count + 1, sizeof *wanted);
    if (wanted == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for %u rows", nearest->count);
    for (uint32_t i = 0; i < nearest->count; i++)
        wanted[i] = (struct wanted){texts[i].document, i};
    qsort(wanted, nearest->count, sizeof *wanted, by_document);
    uint64_t read;
    enum status status = read_input(source, wanted, nearest->count, texts, &read, err);
    if (status == STATUS_OK && documents > 0 && read != documents)
        status = err_set(err, STATUS_BAD_INPUT,
                         "the vectors are those of %llu texts, but the input has %llu; is it the same?",
                         (unsigned long long)documents, (unsigned long long)read);
    free(wanted);
    return status;
}
