/* Measurements that are made once for a machine, each in a small file of the cache directory (base/file.h). All
 * processes use the same result: while one measures, others that look for it wait. */
#ifndef ENGINE_KEPT_H
#define ENGINE_KEPT_H

#include "base/buffer.h"
#include "base/file.h"

enum { KEPT_NAME_BYTES = 40 };

/* One of these files, while it is open. */
struct kept {
    const char *text; /* what is kept, in memory of this struct; "": nothing */
    const char *head;
    char directory[FILE_PATH_BYTES], name[KEPT_NAME_BYTES];
    struct buffer file;
    int fd;         /* -1: it cannot be written, */
    struct err why; /* and why not */
};

/* Opens the file NAME-<digest of head>.txt in the directory that cache_directory finds for `cache_path`. `head` has the
 * lines that identify the subject of the measurement; they are the first of the file, and the text follows them. It may
 * be damaged, so the caller accepts only what it would write. Owns: the caller ends it with kept_close; `head` must
 * live until then. Thread: any, but a thread that has a file open must not open the same one. */
void kept_open(struct kept *kept, const char *cache_path, const char *name, const char *head);

/* Replaces the text in the file, but not kept->text. Without a cache directory it does nothing; if the file cannot be
 * written, that is logged (calibration_not_kept). */
void kept_write(struct kept *kept, const struct buffer *text);

/* Closes the file, so that others may open it. A second time it does nothing. */
void kept_close(struct kept *kept);

#endif
