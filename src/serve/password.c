#include "serve/password.h"

#include <string.h>

#include "base/file.h"

enum { PASSWORD_FILE_MAX_BYTES = 4096 };

static enum status apply_file(const char *path, struct address *address, struct err *err)
{
    struct buffer text = {0};
    enum status status = file_read(path, PASSWORD_FILE_MAX_BYTES, &text, err);
    if (status == STATUS_OK) {
        text.data[strcspn(text.data, "\r\n")] = '\0';
        status = text.data[0] == '\0' ? err_set(err, STATUS_BAD_INPUT, "%s: its first line is empty", path)
                                      : address_set_login(address, NULL, text.data, err);
        explicit_bzero(text.data, text.length);
    }
    buffer_free(&text);
    return status == STATUS_OK ? status : err_prefix(err, "redis_password_file");
}

static enum status apply(const struct config *config, struct address *address, struct err *err)
{
    if (config->redis_password_file != NULL)
        return apply_file(config->redis_password_file, address, err);
    if (config->redis_password != NULL)
        return address_set_login(address, NULL, config->redis_password, err);
    return STATUS_OK;
}

enum status password_address(const struct config *config, struct address *out, struct err *err)
{
    *out = (struct address){0};
    enum status status = address_parse(config->redis, out, err);
    if (status != STATUS_OK)
        return err_prefix(err, "redis");
    status = apply(config, out, err);
    if (status != STATUS_OK)
        address_free(out);
    return status;
}
