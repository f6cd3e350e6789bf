/* The table of backends, best first. A new one is a file and a row here. */
#include "engine/backend.h"

#include <string.h>

static const struct backend_ops *const table[] = {
    &backend_cpu, &backend_null, /* last, so that "auto" never means it */
};

enum { TABLE_ROWS = sizeof table / sizeof table[0] };

static bool is_auto(const char *name)
{
    return name == NULL || strcmp(name, "auto") == 0;
}

enum status backend_find(const char *name, const struct backend_ops **out, struct err *err)
{
    char names[128] = "";
    for (size_t i = 0; i < TABLE_ROWS; i++) {
        bool meant = is_auto(name) ? table[i]->probe() : strcmp(name, table[i]->name) == 0;
        if (meant && !table[i]->probe())
            return err_set(err, STATUS_UNSUPPORTED, "backend \"%s\" does not work on this machine", name);
        if (meant) {
            *out = table[i];
            return STATUS_OK;
        }
        strncat(names, i == 0 ? "" : ", ", sizeof names - strlen(names) - 1);
        strncat(names, table[i]->name, sizeof names - strlen(names) - 1);
    }
    return err_set(err, STATUS_UNSUPPORTED, "no backend \"%s\"; there are: auto, %s", is_auto(name) ? "auto" : name,
                   names);
}
