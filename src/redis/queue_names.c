#include "redis/queue_names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/hex.h"

bool queue_name_is(const char *name, size_t length)
{
    return length >= 1 && length <= QUEUE_NAME_MAX && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_.-") >= length;
}

void queue_put_random(char *to, size_t bytes)
{
    unsigned char random[16] = {0};
    if (getrandom(random, bytes, 0) != (ssize_t)bytes) {
        memset(random, getpid() & 255, sizeof random); /* then only the process id makes the name unique */
    }
    hex_write(to, random, bytes);
}

void queue_host(char host[QUEUE_HOST_MAX + 1])
{
    strcpy(host, "host");
    gethostname(host, QUEUE_HOST_MAX + 1);
    host[QUEUE_HOST_MAX] = '\0';
    for (char *at = host; *at; at++) { *at = isalnum((unsigned char)*at) || *at == '.' ? *at : '-'; }
}

void queue_worker_name_make(char name[QUEUE_WORKER_MAX])
{
    char host[QUEUE_HOST_MAX + 1], incarnation[9];
    queue_host(host);
    queue_put_random(incarnation, 4);
    snprintf(name, QUEUE_WORKER_MAX, "%s-%d-%s", host, (int)getpid(), incarnation);
}

bool queue_worker_name_is(const char *name, size_t length)
{
    enum { HEX = 8 };
    size_t end = length > HEX ? length - HEX - 1 : 0, digits = end; /* where the two dashes are */
    bool ok = end > 0 && length < QUEUE_WORKER_MAX && name[end] == '-';
    for (size_t i = end + 1; ok && i < length; i++) { ok = isxdigit((unsigned char)name[i]); }
    while (ok && digits > 0 && isdigit((unsigned char)name[digits - 1])) { digits--; }
    ok = ok && digits > 0 && digits < end && name[digits - 1] == '-';
    for (size_t i = 0; ok && i < digits; i++) {
        ok = isalnum((unsigned char)name[i]) || name[i] == '.' || name[i] == '-';
    }
    return ok;
}

enum status queue_refuse_precision(const char *name, const char *pinned, const char *ours, struct err *err)
{
    return err_set(err, STATUS_BAD_INPUT,
                   "queue %s is pinned to precision %s, this worker computes in %s: start it with --precision %s, or "
                   "let others in (`sluice pin --precision any`)",
                   name, pinned, ours, pinned);
}
