#include "cli/places.h"

#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"

#define MODEL_NAME "sluice-mini-en"

enum status places_model(char **out, struct err *err)
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    struct buffer installed = {0};
    buffer_format(&installed, "%s/share/sluice/models/" MODEL_NAME, dirname(dirname(self)));
    const char *in_source = SLUICE_SOURCE_DIR "/config/models/" MODEL_NAME;
    if (buffer_ok(&installed)) {
        bool use_source = access(installed.data, F_OK) != 0 && access(in_source, F_OK) == 0;
        *out = strdup(use_source ? in_source : installed.data);
    }
    bool ok = buffer_ok(&installed) && *out != NULL;
    buffer_free(&installed);
    return ok ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the path of the model");
}
