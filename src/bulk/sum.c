/* A crew of one thread, which takes stretches of the file in their order. */
#include "bulk/sum.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bulk/npy.h"
#include "serve/crew.h"

enum { PIECE_BYTES = 1 << 20, STRETCHES = 4 };

/* Bytes of the file that are final. */
struct stretch {
    uint64_t from, to;
};

struct sum {
    const struct store *store;
    uint64_t rows;   /* of the whole file */
    uint64_t handed; /* bytes that were given to the thread, or wait in `next` */
    struct crew *crew;
    struct stretch stretches[STRETCHES]; /* in turn */
    unsigned next;

    /* The thread's. */
    int fd;
    EVP_MD_CTX *context;
    char *piece;
    bool broken;
};

bool sum_hex(EVP_MD_CTX *context, char *hex)
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    bool good = EVP_DigestFinal_ex(context, sum, &length) == 1;
    for (unsigned i = 0; i < length; i++)
        snprintf(hex + (size_t)2 * i, 3, "%02x", sum[i]);
    return good;
}

/* Thread: the sum's. */
static void hash(void *context, void *item)
{
    struct sum *sum = context;
    const struct stretch *stretch = item;
    for (uint64_t at = stretch->from; at < stretch->to && !sum->broken;) {
        uint64_t left = stretch->to - at;
        ssize_t got = pread(sum->fd, sum->piece, left < PIECE_BYTES ? (size_t)left : PIECE_BYTES, (off_t)at);
        sum->broken = got <= 0 || EVP_DigestUpdate(sum->context, sum->piece, (size_t)got) != 1;
        at += got > 0 ? (uint64_t)got : 0;
    }
}

static bool begin(struct sum *sum, int wake_fd)
{
    char path[4096], header[NPY_HEADER_BYTES];
    struct err ignored;
    void *contexts[] = {sum};
    struct crew_options options = {
        .name = "sum", .threads = 1, .capacity = STRETCHES, .wake_fd = wake_fd, .work = hash, .contexts = contexts};
    store_file_name(sum->store, 0, path, sizeof path);
    sum->fd = open(path, O_RDONLY | O_CLOEXEC);
    sum->context = EVP_MD_CTX_new();
    sum->piece = malloc(PIECE_BYTES);
    sum->handed = store_header(sum->store, sum->rows, header);
    return sum->fd >= 0 && sum->context != NULL && sum->piece != NULL &&
           EVP_DigestInit_ex(sum->context, EVP_sha256(), NULL) == 1 &&
           EVP_DigestUpdate(sum->context, header, sum->handed) == 1 &&
           crew_open(&options, &sum->crew, &ignored) == STATUS_OK;
}

struct sum *sum_open(const struct store *store, uint64_t rows, int wake_fd)
{
    struct sum *sum = calloc(1, sizeof *sum);
    if (sum == NULL)
        return NULL;
    sum->store = store;
    sum->rows = rows;
    sum->fd = -1;
    if (begin(sum, wake_fd))
        return sum;
    sum_close(sum);
    return NULL;
}

void sum_advance(struct sum *sum, uint64_t rows)
{
    uint64_t to = rows == 0 ? sum->handed : store_file_bytes(sum->store, rows, 0);
    while (crew_take(sum->crew) != NULL)
        continue;
    if (to == sum->handed || crew_out(sum->crew) == STRETCHES)
        return; /* the next one will be longer */
    struct stretch *stretch = &sum->stretches[sum->next++ % STRETCHES];
    *stretch = (struct stretch){sum->handed, to};
    sum->handed = to;
    crew_put(sum->crew, stretch);
}

bool sum_end(struct sum *sum, char *hex)
{
    struct stat info;
    while (crew_wait(sum->crew) != NULL)
        continue;
    sum_advance(sum, sum->rows);
    while (crew_wait(sum->crew) != NULL)
        continue;
    bool whole = fstat(sum->fd, &info) == 0 && (uint64_t)info.st_size == sum->handed;
    return whole && !sum->broken && sum_hex(sum->context, hex);
}

void sum_close(struct sum *sum)
{
    if (sum == NULL)
        return;
    if (sum->crew != NULL)
        crew_stop(sum->crew);
    crew_free(sum->crew);
    if (sum->fd >= 0)
        close(sum->fd);
    EVP_MD_CTX_free(sum->context);
    free(sum->piece);
    free(sum);
}
