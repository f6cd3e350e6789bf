#include "base/cache.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"

void cache_directory(const char *chosen, char *out)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = 0;
    if (chosen != NULL)
        length = snprintf(out, CACHE_PATH_BYTES, "%s", chosen);
    else if (xdg != NULL && xdg[0] == '/')
        length = snprintf(out, CACHE_PATH_BYTES, "%s/sluice", xdg);
    else if (home != NULL && home[0] == '/')
        length = snprintf(out, CACHE_PATH_BYTES, "%s/.cache/sluice", home);
    if (length <= 0 || length >= CACHE_PATH_BYTES)
        out[0] = '\0';
}

enum status cache_path(const char *directory, const char *name, char *out, struct err *err)
{
    int length = snprintf(out, CACHE_PATH_BYTES, "%s/%s", directory, name);
    if (length < 0 || length >= CACHE_PATH_BYTES)
        return err_set(err, STATUS_BAD_INPUT, "the name of the directory is too long");
    return STATUS_OK;
}

/* Makes a directory and those above it. */
static enum status make_directory(const char *directory, struct err *err)
{
    char path[CACHE_PATH_BYTES];
    if (snprintf(path, sizeof path, "%s", directory) >= (int)sizeof path)
        return err_set(err, STATUS_BAD_INPUT, "the name of the directory is too long");
    for (char *slash = path; (slash = strchr(slash + 1, '/')) != NULL;) {
        *slash = '\0';
        (void)mkdir(path, 0700); /* what matters is whether the last one can be made */
        *slash = '/';
    }
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return err_set_errno(err, "cannot make %s", path);
    return STATUS_OK;
}

enum status cache_write(const char *directory, const char *name, const struct buffer *bytes, struct err *err)
{
    char path[CACHE_PATH_BYTES];
    if (!buffer_ok(bytes))
        return err_set(err, STATUS_NO_MEMORY, "no memory to write %s", name);
    TRY(make_directory(directory, err));
    TRY(cache_path(directory, name, path, err));
    return file_replace(path, bytes->data, bytes->length, err);
}
