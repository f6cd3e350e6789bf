/* An address once it has been read: logins, printing, its end. Passwords are wiped before they are freed. */
#include "io/address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/tls.h"

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

enum status address_set_sentinel_password(struct address *address, const char *password, struct err *err)
{
    char *copy = strdup(password);
    if (!copy) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for the Sentinel password");
    }
    wipe(address->sentinel_password);
    address->sentinel_password = copy;
    return STATUS_OK;
}

bool address_is_plural(const struct address *address)
{
    return address->master || address->place_count > 1;
}

const char *place_print(const struct place *place, char text[ADDRESS_TEXT])
{
    bool six = strchr(place->host, ':') != NULL;
    snprintf(text, ADDRESS_TEXT, "%s%s%s:%u", six ? "[" : "", place->host, six ? "]" : "", place->port);
    return text;
}

/* Appends to a text of ADDRESS_TEXT bytes, as much as there is room for. */
static void append(char *text, const char *more)
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
    for (size_t i = 0; i < address->place_count; i++) {
        append(text, i ? "," : "");
        append(text, place_print(&address->places[i], part));
    }
    if (address->master) {
        append(text, "/");
        append(text, address->master);
    }
    if (address->db) {
        snprintf(part, sizeof part, "/%u", address->db);
        append(text, part);
    }
    return text;
}

void address_free(struct address *address)
{
    for (size_t i = 0; i < address->place_count; i++) {
        free(address->places[i].host);
    }
    free(address->path);
    free(address->places);
    free(address->master);
    free(address->user);
    wipe(address->password);
    wipe(address->sentinel_password);
    tls_close(address->tls);
    *address = (struct address){0};
}
