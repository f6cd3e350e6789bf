/* Reading --redis. The text may hold a password, so no message repeats it. */
#include "io/address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Copies [from, to) with %XX resolved. */
static enum status decode(const char *from, const char *to, char **out, struct err *err)
{
    char *text = malloc((size_t)(to - from) + 1), *end = text;
    if (!text) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for the Redis address");
    }
    for (; from < to; from++) {
        char c = *from;
        if (c == '%') {
            int high = to - from > 2 ? hex_digit(from[1]) : -1, low = to - from > 2 ? hex_digit(from[2]) : -1;
            if (high < 0 || low < 0 || (high == 0 && low == 0)) {
                free(text);
                return err_set(err, STATUS_BAD_INPUT,
                               "the Redis address has a %% that no two hex digits follow "
                               "(a percent sign is written %%25)");
            }
            c = (char)(high * 16 + low);
            from += 2;
        }
        *end++ = c;
    }
    *end = '\0';
    *out = text;
    return STATUS_OK;
}

static enum status parse_number(const char *from, const char *to, uint32_t most, const char *what, uint32_t *out,
                                struct err *err)
{
    uint32_t number = 0;
    bool ok = to > from && to - from <= 9;
    for (; ok && from < to; from++) {
        ok = *from >= '0' && *from <= '9';
        number = number * 10 + (uint32_t)(*from - '0');
    }
    if (!ok || number > most) {
        return err_set(err, STATUS_BAD_INPUT, "the Redis address has a %s that is not a number up to %u", what, most);
    }
    *out = number;
    return STATUS_OK;
}

/* user:password@ before the host. A password alone is written :password@. */
static enum status parse_login(const char *from, const char *to, struct address *out, struct err *err)
{
    const char *colon = memchr(from, ':', (size_t)(to - from));
    enum status status = STATUS_OK;
    if (colon != from && to > from) {
        status = decode(from, colon ? colon : to, &out->user, err);
    }
    if (!status && colon) {
        status = decode(colon + 1, to, &out->password, err);
    }
    return status;
}

static enum status parse_host(const char *from, const char *to, struct address *out, struct err *err)
{
    const char *colon = NULL;
    enum status status;
    if (from < to && *from == '[') {
        const char *bracket = memchr(from, ']', (size_t)(to - from));
        if (!bracket || bracket == from + 1 || (bracket + 1 < to && bracket[1] != ':')) {
            return err_set(err, STATUS_BAD_INPUT, "the Redis address has an IPv6 address without its closing bracket");
        }
        colon = bracket + 1 < to ? bracket + 1 : NULL;
        status = decode(from + 1, bracket, &out->host, err);
    } else {
        colon = memchr(from, ':', (size_t)(to - from));
        const char *end = colon ? colon : to;
        if (end == from) {
            return err_set(err, STATUS_BAD_INPUT, "the Redis address names no host");
        }
        status = decode(from, end, &out->host, err);
    }
    uint32_t port = ADDRESS_PORT;
    if (!status && colon) {
        status = parse_number(colon + 1, to, 65535, "port", &port, err);
    }
    out->port = (uint16_t)port;
    return status;
}

static enum status parse_tcp(const char *text, struct address *out, struct err *err)
{
    const char *slash = text + strcspn(text, "/?#"), *end = text + strlen(text);
    const char *at = memrchr(text, '@', (size_t)(slash - text));
    enum status status = at ? parse_login(text, at, out, err) : STATUS_OK;
    if (!status) {
        status = parse_host(at ? at + 1 : text, slash, out, err);
    }
    if (!status && slash < end && !(slash[0] == '/' && slash[1] == '\0')) {
        if (*slash != '/') {
            return err_set(err, STATUS_BAD_INPUT, "the Redis address may end in /DATABASE and nothing else");
        }
        status = parse_number(slash + 1, end, 1u << 20, "database", &out->db, err);
    }
    return status;
}

static enum status parse_unix_url(const char *text, struct address *out, struct err *err)
{
    const char *slash = strchr(text, '/');
    if (!slash || (slash > text && slash[-1] != '@')) {
        return err_set(err, STATUS_BAD_INPUT, "redis+unix:// needs an absolute path");
    }
    const char *query = strchr(slash, '?'), *end = text + strlen(text);
    enum status status = slash > text ? parse_login(text, slash - 1, out, err) : STATUS_OK;
    if (!status) {
        status = decode(slash, query ? query : end, &out->path, err);
    }
    if (!status && query) {
        if (strncmp(query, "?db=", 4) != 0) {
            return err_set(err, STATUS_BAD_INPUT, "redis+unix:// takes ?db=NUMBER and nothing else");
        }
        status = parse_number(query + 4, end, 1u << 20, "database", &out->db, err);
    }
    return status;
}

static enum status parse_path(const char *text, struct address *out, struct err *err)
{
    if (!*text) {
        return err_set(err, STATUS_BAD_INPUT, "the Redis address is empty");
    }
    out->path = strdup(text);
    return out->path ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the Redis address");
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static enum status parse_any(const char *text, struct address *out, struct err *err)
{
    if (starts(text, "redis://")) {
        return parse_tcp(text + 8, out, err);
    }
    if (starts(text, "redis+unix://")) {
        return parse_unix_url(text + 13, out, err);
    }
    if (starts(text, "unix:")) {
        return parse_path(starts(text, "unix://") ? text + 7 : text + 5, out, err);
    }
    if (starts(text, "rediss://")) {
        return err_set(err, STATUS_UNSUPPORTED, "rediss:// (TLS) is not supported yet; use redis:// or a unix socket");
    }
    if (starts(text, "sentinel://") || starts(text, "redis+sentinel://")) {
        return err_set(err, STATUS_UNSUPPORTED,
                       "Sentinel addresses are not supported yet; name the Redis server itself");
    }
    if (strstr(text, "://")) {
        return err_set(err, STATUS_BAD_INPUT,
                       "the Redis address begins with a scheme that is not redis://, "
                       "redis+unix:// or unix:");
    }
    if (*text && !strchr(text, '/')) {
        return err_set(err, STATUS_BAD_INPUT,
                       "the Redis address is neither a socket path (with a / in it) "
                       "nor redis://host:port");
    }
    return parse_path(text, out, err);
}

enum status address_parse(const char *text, struct address *out, struct err *err)
{
    *out = (struct address){0};
    enum status status = parse_any(text, out, err);
    if (status) {
        address_free(out);
    }
    return status;
}

static void wipe(char *secret)
{
    if (secret) {
        explicit_bzero(secret, strlen(secret));
        free(secret);
    }
}

enum status address_set_login(struct address *address, const char *user, const char *password, struct err *err)
{
    char *new_user = user ? strdup(user) : NULL, *new_password = password ? strdup(password) : NULL;
    if ((user && !new_user) || (password && !new_password)) {
        free(new_user);
        wipe(new_password);
        return err_set(err, STATUS_NO_MEMORY, "no memory for the Redis login");
    }
    if (user) {
        free(address->user);
        address->user = new_user;
    }
    if (password) {
        wipe(address->password);
        address->password = new_password;
    }
    return STATUS_OK;
}

const char *address_print(const struct address *address, char text[ADDRESS_TEXT])
{
    if (address->path) {
        snprintf(text, ADDRESS_TEXT, "%s%s", address->path, address->user || address->password ? " (with login)" : "");
        return text;
    }
    const char *host = address->host ? address->host : "", *user = address->user ? address->user : "";
    bool six = strchr(host, ':') != NULL;
    int length = snprintf(text, ADDRESS_TEXT, "redis://%s%s%s%s%s%s:%u", user, address->password ? ":***" : "",
                          *user || address->password ? "@" : "", six ? "[" : "", host, six ? "]" : "", address->port);
    if (address->db && length > 0 && length < ADDRESS_TEXT) {
        snprintf(text + length, (size_t)(ADDRESS_TEXT - length), "/%u", address->db);
    }
    return text;
}

void address_free(struct address *address)
{
    free(address->path);
    free(address->host);
    free(address->user);
    wipe(address->password);
    *address = (struct address){0};
}
