/* Walks over operands and the folders among them. */
#include "bulk/input/operands.h"

#include <errno.h>
#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>

static int compare_names(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static bool is_wanted(const struct operands *operands, const char *name)
{
    if (operands->glob) { return fnmatch(operands->glob, name, FNM_PERIOD) == 0; }
    return fnmatch("*.txt", name, FNM_PERIOD) == 0 || fnmatch("*.md", name, FNM_PERIOD) == 0;
}

static enum status open_folder(struct operands *operands, char *folder, struct err *err)
{
    char *const roots[] = {folder, NULL};
    operands->walk = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, compare_names);
    return operands->walk ? STATUS_OK : err_set_errno(err, "cannot read %s", folder);
}

void operands_close(struct operands *operands)
{
    if (operands->walk) { fts_close(operands->walk); }
    operands->walk = NULL;
}

/* The next wanted file of the walk, or NULL at its end. A dangling link is given out, too, so that it is listed as
 * unreadable. */
static enum status find_next(struct operands *operands, FTSENT **out, struct err *err)
{
    for (;;) {
        errno = 0;
        FTSENT *entry = *out = fts_read(operands->walk);
        if (!entry) { return errno == 0 ? STATUS_OK : err_set_errno(err, "cannot read a folder"); }
        if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR) {
            errno = entry->fts_errno;
            return err_set_errno(err, "cannot read %s", entry->fts_path);
        }
        bool hidden = entry->fts_name[0] == '.' && entry->fts_level > 0;
        if (entry->fts_info == FTS_D && hidden) { fts_set(operands->walk, entry, FTS_SKIP); }
        bool file = entry->fts_info == FTS_F || entry->fts_info == FTS_NS || entry->fts_info == FTS_SLNONE;
        if (file && is_wanted(operands, entry->fts_name)) { return STATUS_OK; }
    }
}

static enum status add_sizes(struct operands *operands, char *folder, struct err *err)
{
    TRY(open_folder(operands, folder, err));
    FTSENT *entry;
    enum status status;
    while ((status = find_next(operands, &entry, err)) == STATUS_OK && entry) {
        operands->total_bytes += entry->fts_info == FTS_F ? (uint64_t)entry->fts_statp->st_size : 0;
    }
    operands_close(operands);
    return status;
}

enum status operands_open(struct operands *operands, char *const *paths, size_t count, const char *glob,
                          struct err *err)
{
    *operands = (struct operands){.paths = paths, .count = count, .glob = glob};
    bool known = true;
    for (size_t i = 0; i < count; i++) {
        struct stat info;
        if (strcmp(paths[i], "-") == 0) {
            known = false;
            continue;
        }
        if (stat(paths[i], &info) != 0) { return err_set_errno(err, "cannot open %s", paths[i]); }
        if (S_ISDIR(info.st_mode)) {
            TRY(add_sizes(operands, paths[i], err));
        } else if (S_ISREG(info.st_mode)) {
            operands->total_bytes += (uint64_t)info.st_size;
        } else {
            known = false;
        }
    }
    operands->total_bytes = known ? operands->total_bytes : 0;
    return STATUS_OK;
}

enum status operands_next(struct operands *operands, struct file_name *out, struct err *err)
{
    *out = (struct file_name){0};
    for (;;) {
        if (operands->walk) {
            FTSENT *entry;
            TRY(find_next(operands, &entry, err));
            if (entry) {
                *out = (struct file_name){.path = entry->fts_path, .in_folder = true};
                return STATUS_OK;
            }
            operands_close(operands);
        }
        if (operands->next == operands->count) { return STATUS_OK; }
        char *operand = operands->paths[operands->next++];
        struct stat info;
        if (strcmp(operand, "-") != 0 && stat(operand, &info) == 0 && S_ISDIR(info.st_mode)) {
            TRY(open_folder(operands, operand, err));
            continue;
        }
        *out = (struct file_name){.path = operand};
        return STATUS_OK;
    }
}
