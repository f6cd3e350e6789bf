/* Parses and prints addresses. The text may hold a password, so no message repeats it. */
#include "redis/address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "redis/tls.h"

static void wipe_secret(char *secret)
{
    if (secret) {
        explicit_bzero(secret, strlen(secret));
        free(secret);
    }
}

enum status address_set_password(char **password, const char *text, struct err *err)
{
    char *copy = strdup(text);
    if (!copy) { return err_set(err, STATUS_NO_MEMORY, "no memory for a Redis password"); }
    wipe_secret(*password);
    *password = copy;
    return STATUS_OK;
}

bool address_is_plural(const struct address *address)
{
    return address->master || address->endpoint_count > 1;
}

const char *endpoint_print(const struct endpoint *endpoint, char text[ADDRESS_TEXT])
{
    bool six = strchr(endpoint->host, ':');
    snprintf(text, ADDRESS_TEXT, "%s%s%s:%u", six ? "[" : "", endpoint->host, six ? "]" : "", endpoint->port);
    return text;
}

/* Appends as much of `more` as fits into a text of ADDRESS_TEXT bytes. */
static void append_text(char *text, const char *more)
{
    size_t used = strlen(text);
    snprintf(text + used, ADDRESS_TEXT - used, "%s", more);
}

const char *address_print(const struct address *address, char text[ADDRESS_TEXT])
{
    char part[ADDRESS_TEXT];
    bool login = address->user || address->password;
    if (address->path) {
        snprintf(text, ADDRESS_TEXT, "%s%s", address->path, login ? " (with login)" : "");
        return text;
    }
    snprintf(text, ADDRESS_TEXT, "redis%s%s://%s%s%s", address->encrypted ? "s" : "",
             address->master ? "+sentinel" : "", address->user ? address->user : "", address->password ? ":***" : "",
             login ? "@" : "");
    for (size_t i = 0; i < address->endpoint_count; i++) {
        append_text(text, i ? "," : "");
        append_text(text, endpoint_print(&address->endpoints[i], part));
    }
    if (address->master) {
        append_text(text, "/");
        append_text(text, address->master);
    }
    if (address->db) {
        snprintf(part, sizeof part, "/%u", address->db);
        append_text(text, part);
    }
    return text;
}

void address_free(struct address *address)
{
    for (size_t i = 0; i < address->endpoint_count; i++) { free(address->endpoints[i].host); }
    free(address->path);
    free(address->endpoints);
    free(address->master);
    free(address->user);
    wipe_secret(address->password);
    wipe_secret(address->sentinel_password);
    tls_close(address->tls);
    *address = (struct address){0};
}

/* --- Parsing ------------------------------------------------------------------------------------------------------ */

/* Copies [from, to) and decodes %XX. */
static enum status decode_part(const char *from, const char *to, char **out, struct err *err)
{
    char *text = malloc((size_t)(to - from) + 1), *end = text;
    if (!text) { return err_set(err, STATUS_NO_MEMORY, "no memory for the Redis address"); }
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
    if (colon != from && to > from) { status = decode_part(from, colon ? colon : to, &out->user, err); }
    if (!status && colon) { status = decode_part(colon + 1, to, &out->password, err); }
    return status;
}

/* host[:port]; appends an endpoint to `out`. */
static enum status parse_endpoint(const char *from, const char *to, struct address *out, struct err *err)
{
    struct endpoint *endpoint = &out->endpoints[out->endpoint_count];
    const char *colon = NULL;
    enum status status;
    if (from < to && *from == '[') {
        const char *bracket = memchr(from, ']', (size_t)(to - from));
        if (!bracket || bracket == from + 1 || (bracket + 1 < to && bracket[1] != ':')) {
            return err_set(err, STATUS_BAD_INPUT, "the Redis address has an IPv6 address without its closing bracket");
        }
        colon = bracket + 1 < to ? bracket + 1 : NULL;
        status = decode_part(from + 1, bracket, &endpoint->host, err);
    } else {
        colon = memchr(from, ':', (size_t)(to - from));
        const char *end = colon ? colon : to;
        if (end == from) { return err_set(err, STATUS_BAD_INPUT, "the Redis address names no host"); }
        status = decode_part(from, end, &endpoint->host, err);
    }
    if (status) { return status; }
    out->endpoint_count++; /* from here on address_free knows the host */
    uint32_t port = endpoint->port;
    if (colon) { status = parse_number(colon + 1, to, 65535, "port", &port, err); }
    endpoint->port = (uint16_t)port;
    return status;
}

/* host[:port],host[:port]… up to `to`. */
static enum status parse_endpoints(const char *from, const char *to, uint16_t port, struct address *out,
                                   struct err *err)
{
    size_t count = 1;
    for (const char *at = from; at < to; at++) { count += *at == ','; }
    if (count > ADDRESS_ENDPOINTS_MAX) {
        return err_set(err, STATUS_BAD_INPUT, "the Redis address names more than %d hosts", ADDRESS_ENDPOINTS_MAX);
    }
    out->endpoints = calloc(count, sizeof *out->endpoints);
    if (!out->endpoints) { return err_set(err, STATUS_NO_MEMORY, "no memory for the Redis address"); }
    for (size_t i = 0; i < count; i++) {
        const char *comma = memchr(from, ',', (size_t)(to - from));
        const char *end = comma ? comma : to;
        out->endpoints[i].port = port;
        TRY(parse_endpoint(from, end, out, err));
        from = end + 1;
    }
    return STATUS_OK;
}

/* [user:password@]host[:port],…; sets `*rest` to the slash after it, or to the end. */
static enum status parse_authority(const char *text, uint16_t port, struct address *out, const char **rest,
                                   struct err *err)
{
    const char *slash = text + strcspn(text, "/?#");
    const char *at = memrchr(text, '@', (size_t)(slash - text));
    if (at) { TRY(parse_login(text, at, out, err)); }
    *rest = slash;
    return parse_endpoints(at ? at + 1 : text, slash, port, out, err);
}

/* /DATABASE, or nothing. */
static enum status parse_database(const char *text, struct address *out, struct err *err)
{
    if (!*text || strcmp(text, "/") == 0) { return STATUS_OK; }
    if (*text != '/') {
        return err_set(err, STATUS_BAD_INPUT, "the Redis address may end in /DATABASE and nothing else");
    }
    return parse_number(text + 1, text + strlen(text), 1u << 20, "database", &out->db, err);
}

static enum status parse_sentinel(const char *text, struct address *out, struct err *err)
{
    const char *rest;
    TRY(parse_authority(text, ADDRESS_SENTINEL_PORT, out, &rest, err));
    const char *name = rest + (*rest == '/'), *end = name + strcspn(name, "/?#");
    if (end == name) {
        return err_set(err, STATUS_BAD_INPUT,
                       "a Sentinel address ends in the name of the master: redis+sentinel://HOST/NAME");
    }
    TRY(decode_part(name, end, &out->master, err));
    return parse_database(end, out, err);
}

static enum status parse_unix_url(const char *text, struct address *out, struct err *err)
{
    const char *slash = strchr(text, '/');
    if (!slash || (slash > text && slash[-1] != '@')) {
        return err_set(err, STATUS_BAD_INPUT, "redis+unix:// needs an absolute path");
    }
    const char *query = strchr(slash, '?'), *end = text + strlen(text);
    enum status status = slash > text ? parse_login(text, slash - 1, out, err) : STATUS_OK;
    if (!status) { status = decode_part(slash, query ? query : end, &out->path, err); }
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
    if (!*text) { return err_set(err, STATUS_BAD_INPUT, "the Redis address is empty"); }
    out->path = strdup(text);
    return out->path ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the Redis address");
}

static bool starts_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static enum status parse_any(const char *text, struct address *out, struct err *err)
{
    out->encrypted = starts_with(text, "rediss://") || starts_with(text, "rediss+sentinel://");
    if (starts_with(text, "redis://") || starts_with(text, "rediss://")) {
        const char *rest;
        TRY(parse_authority(strstr(text, "://") + 3, ADDRESS_PORT, out, &rest, err));
        return parse_database(rest, out, err);
    }
    if (starts_with(text, "redis+sentinel://") || starts_with(text, "rediss+sentinel://")) {
        return parse_sentinel(strstr(text, "://") + 3, out, err);
    }
    if (starts_with(text, "redis+unix://")) { return parse_unix_url(text + 13, out, err); }
    if (starts_with(text, "unix:")) { return parse_path(starts_with(text, "unix://") ? text + 7 : text + 5, out, err); }
    if (strstr(text, "://")) {
        return err_set(err, STATUS_BAD_INPUT,
                       "the Redis address begins with a scheme that is not redis://, rediss://, "
                       "redis+sentinel://, rediss+sentinel://, redis+unix:// or unix:");
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
    if (status) { address_free(out); }
    return status;
}
