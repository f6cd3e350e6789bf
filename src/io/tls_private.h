/* What tls.c and tls_explain.c share. */
#ifndef IO_TLS_PRIVATE_H
#define IO_TLS_PRIVATE_H

#include <sys/types.h>
#include <time.h>

#include "io/tls.h"

/* The files that are looked at again. */
enum tls_file { TLS_CA, TLS_CERT, TLS_KEY, TLS_FILES };

/* What tells one content of a file from the next. */
struct tls_stamp {
    struct timespec changed;
    off_t size;
    ino_t inode;
};

/* What sessions are made from, and of which content of the files. */
struct tls {
    struct ssl_ctx_st *context;
    char *files[TLS_FILES]; /* NULL where none is named */
    struct tls_stamp stamps[TLS_FILES];
};

#endif
