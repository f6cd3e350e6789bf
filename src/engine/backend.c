/* The table of backends, best first. A new one is a file and a row here. */
#include "engine/backend.h"

#include <stdio.h>
#include <string.h>

static const struct backend_ops *const table[] = {
#ifdef SLUICE_CUDA
    &backend_cuda,
#endif
    &backend_cpu, &backend_null, /* last: "auto" never means it */
};

enum { TABLE_ROWS = sizeof table / sizeof table[0], AUTO_ROWS = TABLE_ROWS - 1 };

static bool is_auto(const char *name)
{
    return !name || strcmp(name, "auto") == 0;
}

static void append(char *text, size_t size, const char *more)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s", more);
}

static void list_names(char *names, size_t size)
{
    names[0] = '\0';
    for (size_t i = 0; i < TABLE_ROWS; i++) {
        append(names, size, ", ");
        append(names, size, table[i]->name);
    }
}

enum status backend_choose(const struct backend_ops *ops, enum precision asked, enum precision *out, struct err *err)
{
    *out = ops->choose(asked);
    if (*out == PRECISION_AUTO) {
        return err_set(err, STATUS_UNSUPPORTED, "backend \"%s\" cannot compute in %s on this machine", ops->name,
                       precision_name(asked));
    }
    return STATUS_OK;
}

/* Whether a row will do for "auto". */
static enum status consider(const struct backend_ops *ops, enum precision asked, struct err *err)
{
    unsigned count;
    enum precision chosen;
    TRY(ops->devices(&count, err));
    return backend_choose(ops, asked, &chosen, err);
}

static enum status find_best(enum precision asked, const struct backend_ops **out, struct err *passed_over,
                             struct err *err)
{
    char reasons[sizeof err->message] = "";
    for (size_t i = 0; i < AUTO_ROWS; i++) {
        struct err why = {0};
        if (consider(table[i], asked, &why) == STATUS_OK) {
            *out = table[i];
            if (passed_over && i > 0) {
                (void)err_set(passed_over, STATUS_UNSUPPORTED, "%s", reasons);
            }
            return STATUS_OK;
        }
        append(reasons, sizeof reasons, i == 0 ? "" : "; ");
        append(reasons, sizeof reasons, why.message);
    }
    return err_set(err, STATUS_UNSUPPORTED, "%s", reasons);
}

enum status backend_find(const char *name, enum precision asked, const struct backend_ops **out,
                         struct err *passed_over, struct err *err)
{
    if (passed_over) {
        *passed_over = (struct err){0};
    }
    if (is_auto(name)) {
        return find_best(asked, out, passed_over, err);
    }
    for (size_t i = 0; i < TABLE_ROWS; i++) {
        if (strcmp(name, table[i]->name) != 0) {
            continue;
        }
        unsigned count;
        TRY(table[i]->devices(&count, err));
        *out = table[i];
        return STATUS_OK;
    }
    char names[128];
    list_names(names, sizeof names);
    return err_set(err, STATUS_UNSUPPORTED, "no backend \"%s\"; there are: auto%s", name, names);
}
