#include "engine/kept.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/log.h"

enum { FILE_MAX_BYTES = 1 << 16 };

void kept_open(struct kept *kept, const char *cache_path, const char *name, const char *head)
{
    size_t length = strlen(head);
    *kept = (struct kept){.text = "", .head = head, .fd = -1};
    cache_directory(cache_path, kept->directory);
    if (kept->directory[0] == '\0') { return; }
    snprintf(kept->name, KEPT_NAME_BYTES, "%s-%016" PRIx64 ".txt", name, (uint64_t)XXH64(head, length, 0));
    kept->why.status = cache_open(kept->directory, kept->name, &kept->fd, &kept->why);
    /* One that cannot be written may still be read. */
    if (file_read_in(kept->directory, kept->name, FILE_MAX_BYTES, &kept->file, NULL) == STATUS_OK &&
        kept->file.length > length && memcmp(kept->file.data, head, length) == 0) {
        kept->text = kept->file.data + length;
    }
}

void kept_write(struct kept *kept, const struct buffer *text)
{
    struct err *why = &kept->why;
    if (kept->directory[0] == '\0') { return; }
    if (!buffer_ok(text)) { why->status = err_set(why, STATUS_NO_MEMORY, "no memory to write %s", kept->name); }
    if (why->status == STATUS_OK && (ftruncate(kept->fd, 0) != 0 || lseek(kept->fd, 0, SEEK_SET) != 0)) {
        why->status = err_set_errno(why, "cannot write %s", kept->name);
    }
    if (why->status == STATUS_OK) { why->status = file_put(kept->fd, kept->head, strlen(kept->head), kept->name, why); }
    if (why->status == STATUS_OK) { why->status = file_put(kept->fd, text->data, text->length, kept->name, why); }
    if (why->status != STATUS_OK) {
        log_warn("calibration_not_kept", log_str("directory", kept->directory), log_str("reason", why->message));
    }
}

void kept_close(struct kept *kept)
{
    if (kept->fd >= 0) { close(kept->fd); }
    kept->fd = -1;
    kept->text = "";
    buffer_free(&kept->file);
}
