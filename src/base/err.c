/* Messages are cut, never grown: an error path must not allocate. */
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "base/utf8.h"

static const struct {
    const char *name;
    int exit_code;
} statuses[] = {
    [STATUS_OK] = {"ok", EX_OK},
    [STATUS_BAD_INPUT] = {"bad_input", EX_DATAERR},
    [STATUS_NOT_FOUND] = {"not_found", EX_NOINPUT},
    [STATUS_UNSUPPORTED] = {"unsupported", EX_DATAERR},
    [STATUS_NO_MEMORY] = {"no_memory", EX_OSERR},
    [STATUS_IO] = {"io", EX_IOERR},
    [STATUS_UNAVAILABLE] = {"unavailable", EX_UNAVAILABLE},
    [STATUS_DENIED] = {"denied", EX_NOPERM},
    [STATUS_TIMEOUT] = {"timeout", EX_TEMPFAIL},
    [STATUS_DEVICE_LOST] = {"device_lost", EX_SOFTWARE},
    [STATUS_NON_FINITE] = {"non_finite", EX_SOFTWARE},
    [STATUS_INTERNAL] = {"internal", EX_SOFTWARE},
};

enum status err_set(struct err *err, enum status status, const char *format, ...)
{
    if (!err) { return status; }
    err->status = status;
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    utf8_mend(err->message, sizeof err->message);
    return status;
}

static enum status status_of_errno(int code)
{
    switch (code) {
    case ENOENT:
    case ENOTDIR:
        return STATUS_NOT_FOUND;
    case EACCES:
    case EPERM:
        return STATUS_DENIED;
    case ENOMEM:
        return STATUS_NO_MEMORY;
    case ETIMEDOUT:
        return STATUS_TIMEOUT;
    default:
        return STATUS_IO;
    }
}

enum status err_set_errno(struct err *err, const char *format, ...)
{
    int code = errno;
    enum status status = status_of_errno(code);
    if (!err) { return status; }
    char what[384];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return err_set(err, status, "%s: %s", what, strerror(code));
}

enum status err_prefix(struct err *err, const char *format, ...)
{
    char where[192];
    va_list args;
    va_start(args, format);
    vsnprintf(where, sizeof where, format, args);
    va_end(args);
    char message[sizeof err->message];
    memcpy(message, err->message, sizeof message);
    return err_set(err, err->status, "%s: %s", where, message);
}

const char *status_name(enum status status)
{
    return (size_t)status < sizeof statuses / sizeof statuses[0] ? statuses[status].name : "unknown";
}

int status_exit_code(enum status status)
{
    return (size_t)status < sizeof statuses / sizeof statuses[0] ? statuses[status].exit_code : EX_SOFTWARE;
}
