/* The table of backends, best first. A new one is a file and a row here. */
#include "engine/backend.h"

#include <string.h>

static const struct backend_ops *const table[] = {
#ifdef SLUICE_CUDA
    &backend_cuda,
#endif
    &backend_cpu, &backend_null, /* last, so that "auto" never means it */
};

enum { TABLE_ROWS = sizeof table / sizeof table[0] };

static bool is_auto(const char *name)
{
    return name == NULL || strcmp(name, "auto") == 0;
}

static void list_names(char *names, size_t size)
{
    names[0] = '\0';
    for (size_t i = 0; i < TABLE_ROWS; i++) {
        strncat(names, ", ", size - strlen(names) - 1);
        strncat(names, table[i]->name, size - strlen(names) - 1);
    }
}

static enum status find_best(const struct backend_ops **out, struct err *passed_over, struct err *err)
{
    struct err first = {0}, why = {0};
    for (size_t i = 0; i < TABLE_ROWS; i++) {
        unsigned count;
        if (table[i]->devices(&count, &why) == STATUS_OK) {
            *out = table[i];
            if (passed_over != NULL)
                *passed_over = first;
            return STATUS_OK;
        }
        if (i == 0)
            first = why;
    }
    return err_set(err, STATUS_UNSUPPORTED, "no backend works on this machine: %s", first.message);
}

enum status backend_find(const char *name, const struct backend_ops **out, struct err *passed_over, struct err *err)
{
    if (passed_over != NULL)
        *passed_over = (struct err){0};
    if (is_auto(name))
        return find_best(out, passed_over, err);
    for (size_t i = 0; i < TABLE_ROWS; i++) {
        if (strcmp(name, table[i]->name) != 0)
            continue;
        unsigned count;
        TRY(table[i]->devices(&count, err));
        *out = table[i];
        return STATUS_OK;
    }
    char names[128];
    list_names(names, sizeof names);
    return err_set(err, STATUS_UNSUPPORTED, "no backend \"%s\"; there are: auto%s", name, names);
}
