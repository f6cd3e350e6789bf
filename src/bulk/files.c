/* Folders are walked twice, once for their sizes and once for their files, so that no list of names is held. */
#include "bulk/files.h"

#include <errno.h>
#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static bool wanted(const struct files *files, const char *name)
{
    if (files->glob != NULL)
        return fnmatch(files->glob, name, FNM_PERIOD) == 0;
    return fnmatch("*.txt", name, FNM_PERIOD) == 0 || fnmatch("*.md", name, FNM_PERIOD) == 0;
}

static enum status walk_open(struct files *files, char *folder, struct err *err)
{
    char *const roots[] = {folder, NULL};
    files->walk = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, by_name);
    return files->walk == NULL ? err_set_errno(err, "cannot read %s", folder) : STATUS_OK;
}

static void walk_close(struct files *files)
{
    if (files->walk != NULL)
        fts_close(files->walk);
    files->walk = NULL;
}

/* The next wanted file of the walk, or NULL at its end. A link that leads nowhere is given out as well: it is to be
 * listed as what could not be read. */
static enum status walk_next(struct files *files, FTSENT **out, struct err *err)
{
    for (;;) {
        errno = 0;
        FTSENT *entry = *out = fts_read(files->walk);
        if (entry == NULL)
            return errno == 0 ? STATUS_OK : err_set_errno(err, "cannot read a folder");
        if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR) {
            errno = entry->fts_errno;
            return err_set_errno(err, "cannot read %s", entry->fts_path);
        }
        bool hidden = entry->fts_name[0] == '.' && entry->fts_level > 0;
        if (entry->fts_info == FTS_D && hidden)
            fts_set(files->walk, entry, FTS_SKIP);
        bool file = entry->fts_info == FTS_F || entry->fts_info == FTS_NS || entry->fts_info == FTS_SLNONE;
        if (file && wanted(files, entry->fts_name))
            return STATUS_OK;
    }
}

static enum status add_folder(struct files *files, char *folder, struct err *err)
{
    TRY(walk_open(files, folder, err));
    FTSENT *entry;
    enum status status;
    while ((status = walk_next(files, &entry, err)) == STATUS_OK && entry != NULL)
        files->total_bytes += entry->fts_info == FTS_F ? (uint64_t)entry->fts_statp->st_size : 0;
    walk_close(files);
    return status;
}

enum status files_open(struct files *files, char *const *operands, size_t count, const char *glob, struct err *err)
{
    *files = (struct files){.operands = operands, .count = count, .glob = glob};
    bool known = true;
    for (size_t i = 0; i < count; i++) {
        struct stat info;
        if (strcmp(operands[i], "-") == 0) {
            known = false;
            continue;
        }
        if (stat(operands[i], &info) != 0)
            return err_set_errno(err, "cannot open %s", operands[i]);
        if (S_ISDIR(info.st_mode))
            TRY(add_folder(files, operands[i], err));
        else if (S_ISREG(info.st_mode))
            files->total_bytes += (uint64_t)info.st_size;
        else
            known = false;
    }
    files->total_bytes = known ? files->total_bytes : 0;
    return STATUS_OK;
}

void files_close(struct files *files)
{
    walk_close(files);
}

enum status files_next(struct files *files, struct file_name *out, struct err *err)
{
    *out = (struct file_name){0};
    for (;;) {
        if (files->walk != NULL) {
            FTSENT *entry;
            TRY(walk_next(files, &entry, err));
            if (entry != NULL) {
                *out = (struct file_name){.path = entry->fts_path, .in_folder = true};
                return STATUS_OK;
            }
            walk_close(files);
        }
        if (files->next == files->count)
            return STATUS_OK;
        char *operand = files->operands[files->next++];
        struct stat info;
        if (strcmp(operand, "-") != 0 && stat(operand, &info) == 0 && S_ISDIR(info.st_mode)) {
            TRY(walk_open(files, operand, err));
            continue;
        }
        *out = (struct file_name){.path = operand};
        return STATUS_OK;
    }
}
