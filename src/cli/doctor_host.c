/* This host: what a worker here would compute on, and the libraries under the program, against the versions in which
 * known holes are closed. Debian closes holes without changing the version that a library tells, so the package
 * database is read where there is one. */
#include <cjson/cJSON.h>
#include <ctype.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/file.h"
#include "cli/doctor.h"
#include "engine/engine.h"

#define PACKAGES "/var/lib/dpkg/status"

enum { PACKAGES_MAX_BYTES = 64 << 20 };

static const struct {
    const char *package, *floor;
} floors[] = {
    {"libevent-core-2.1-7", "2.1.12-stable-8+deb12u1"},
    {"libcjson1", "1.7.15-1+deb12u4"},
    {"redis-server", "5:7.0.15-1~deb12u10"},
};

/* Order of a character among non-digits: ~ before the end, letters before the rest. */
static int order_of(char c)
{
    if (c == '~')
        return -1;
    if (c == '\0' || isdigit((unsigned char)c))
        return 0;
    return isalpha((unsigned char)c) ? c : c + 256;
}

/* Whether Debian's version `a` is before `b`. */
static bool version_before(const char *a, const char *b)
{
    while (*a != '\0' || *b != '\0') {
        while ((*a != '\0' && !isdigit((unsigned char)*a)) || (*b != '\0' && !isdigit((unsigned char)*b))) {
            if (order_of(*a) != order_of(*b))
                return order_of(*a) < order_of(*b);
            a += *a != '\0';
            b += *b != '\0';
        }
        a += strspn(a, "0");
        b += strspn(b, "0");
        size_t digits_a = strspn(a, "0123456789"), digits_b = strspn(b, "0123456789");
        if (digits_a != digits_b)
            return digits_a < digits_b;
        int by_value = strncmp(a, b, digits_a);
        if (by_value != 0)
            return by_value < 0;
        a += digits_a;
        b += digits_b;
    }
    return false;
}

/* The installed version of a package; false when there is none. */
static bool find_version(const char *database, const char *package, char version[128])
{
    char head[128];
    snprintf(head, sizeof head, "Package: %s\n", package);
    const char *at = strstr(database, head);
    const char *end = at == NULL ? NULL : strstr(at, "\n\n");
    const char *line = at == NULL ? NULL : strstr(at, "\nVersion: ");
    if (line == NULL || (end != NULL && line > end))
        return false;
    line += strlen("\nVersion: ");
    snprintf(version, 128, "%.*s", (int)strcspn(line, "\n"), line);
    return true;
}

/* Which backend the settings mean here; where "auto" does not mean the GPU, why. */
static void check_backend(struct doctor *doctor)
{
    const char *setting = doctor->config->backend, *name;
    enum precision precision = (enum precision)doctor->config->precision;
    struct err why = {0}, err;
    if (engine_find(setting, precision, &name, &why, &err) != STATUS_OK)
        doctor_say(doctor, FINDING_FAIL, "backend", "%s: %s", setting, err.message);
    else if (why.message[0] != '\0')
        doctor_say(doctor, FINDING_OK, "backend", "%s, not cuda: %s", name, why.message);
    else if (strcmp(setting, "auto") == 0 && strcmp(name, "cpu") == 0)
        doctor_say(doctor, FINDING_OK, "backend", "cpu; this build has no CUDA");
    else
        doctor_say(doctor, FINDING_OK, "backend", "%s", name);
}

void doctor_host(struct doctor *doctor)
{
    check_backend(doctor);
    struct buffer database = {0};
    struct err err;
    doctor_say(doctor, FINDING_OK, "libraries", "libevent %s, cJSON %s", event_get_version(), cJSON_Version());
    bool known = file_read(PACKAGES, PACKAGES_MAX_BYTES, &database, &err) == STATUS_OK;
    for (size_t i = 0; known && i < sizeof floors / sizeof floors[0]; i++) {
        char version[128];
        if (!find_version(database.data, floors[i].package, version))
            continue;
        if (version_before(version, floors[i].floor))
            doctor_say(doctor, FINDING_WARN, "packages", "%s %s has known security holes; use %s or later",
                       floors[i].package, version, floors[i].floor);
        else
            doctor_say(doctor, FINDING_OK, "packages", "%s %s", floors[i].package, version);
    }
    buffer_free(&database);
}
