#include "serve/password.h"

#include <string.h>

#include "base/file.h"
#include "io/tls.h"

enum { PASSWORD_FILE_MAX_BYTES = 4096 };

typedef enum status take_fn(struct address *address, const char *password, struct err *err);

static enum status take_redis(struct address *address, const char *password, struct err *err)
{
    return address_set_login(address, NULL, password, err);
}

static enum status take_sentinel(struct address *address, const char *password, struct err *err)
{
    return address_set_sentinel_password(address, password, err);
}

static enum status apply_file(const char *path, const char *key, take_fn *take, struct address *address,
                              struct err *err)
{
    struct buffer text = {0};
    enum status status = file_read(path, PASSWORD_FILE_MAX_BYTES, &text, err);
    if (status == STATUS_OK) {
        text.data[strcspn(text.data, "\r\n")] = '\0';
        status = text.data[0] == '\0' ? err_set(err, STATUS_BAD_INPUT, "%s: its first line is empty", path)
                                      : take(address, text.data, err);
        explicit_bzero(text.data, text.length);
    }
    buffer_free(&text);
    return status == STATUS_OK ? status : err_prefix(err, "%s", key);
}

static enum status apply_passwords(const struct config *config, struct address *address, struct err *err)
{
    if (config->redis_password_file != NULL)
        TRY(apply_file(config->redis_password_file, "redis_password_file", take_redis, address, err));
    else if (config->redis_password != NULL)
        TRY(take_redis(address, config->redis_password, err));
    if (config->sentinel_password == NULL && config->sentinel_password_file == NULL)
        return STATUS_OK;
    if (address->master == NULL)
        return err_set(err, STATUS_BAD_INPUT,
                       "a Sentinel password is set, but redis is not a redis+sentinel:// address");
    if (config->sentinel_password_file != NULL)
        return apply_file(config->sentinel_password_file, "sentinel_password_file", take_sentinel, address, err);
    return take_sentinel(address, config->sentinel_password, err);
}

static enum status apply_tls(const struct config *config, struct address *address, struct err *err)
{
    struct tls_options options = {config->tls_ca_file, config->tls_cert_file, config->tls_key_file};
    if (address->encrypted)
        return tls_open(&options, &address->tls, err);
    if (options.ca_file != NULL || options.cert_file != NULL)
        return err_set(err, STATUS_BAD_INPUT,
                       "%s is set, but redis is not a rediss:// address: nothing would be encrypted",
                       options.ca_file != NULL ? "tls_ca_file" : "tls_cert_file");
    return STATUS_OK;
}

enum status password_address(const struct config *config, struct address *out, struct err *err)
{
    *out = (struct address){0};
    enum status status = address_parse(config->redis, out, err);
    if (status != STATUS_OK)
        return err_prefix(err, "redis");
    status = apply_passwords(config, out, err);
    if (status == STATUS_OK)
        status = apply_tls(config, out, err);
    if (status != STATUS_OK)
        address_free(out);
    return status;
}
