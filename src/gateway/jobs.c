#include "gateway/jobs.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/hex.h"
#include "base/json.h"
#include "gateway/keys.h"
#include "http/server.h"

enum { KEPT_MS = 86400000 };
static const char job_prefix[] = "job-", key_prefix[] = "key-";

/* --- Ids and addresses -------------------------------------------------------------------------------------------- */

static void put_id(char id[JOB_ID_MAX], const char *prefix, const unsigned char *bytes, size_t length)
{
    int used = snprintf(id, JOB_ID_MAX, "%s", prefix);
    hex_write(id + used, bytes, length);
}

/* True if a gateway may have made it. */
static bool is_id(const char *id)
{
    size_t digits = strncmp(id, job_prefix, 4) == 0 ? 32 : strncmp(id, key_prefix, 4) == 0 ? 64 : 0;
    return digits > 0 && strlen(id) == 4 + digits && strspn(id + 4, "0123456789abcdef") == digits;
}

bool job_make_id(char id[JOB_ID_MAX])
{
    unsigned char random[16];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) { return false; }
    put_id(id, job_prefix, random, sizeof random);
    return true;
}

bool job_id_of_key(const char *tenant, const char *key, const struct http_request *request, char id[JOB_ID_MAX])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    const char *parts[] = {tenant ? tenant : "", key, request->path, request->body};
    size_t lengths[] = {strlen(parts[0]), strlen(key), strlen(request->path), request->body_length};
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool good = context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1;
    for (size_t i = 0; good && i < 4; i++) {
        good = EVP_DigestUpdate(context, &lengths[i], sizeof lengths[i]) == 1 &&
               EVP_DigestUpdate(context, parts[i], lengths[i]) == 1;
    }
    good = good && EVP_DigestFinal_ex(context, digest, &length) == 1;
    EVP_MD_CTX_free(context);
    if (good) { put_id(id, key_prefix, digest, length); }
    return good;
}

bool job_read(const char *address, struct job *job)
{
    const char *slash = strchr(address, '/'), *last = strrchr(address, '/');
    enum request_class class;
    struct entry_id entry;
    if (!slash || last == slash || last - slash > REQUEST_NAME_MAX) { return false; }
    *job = (struct job){.queue = {address, (size_t)(slash - address)}, .id = last + 1};
    snprintf(job->name, sizeof job->name, "%.*s", (int)(last - slash - 1), slash + 1);
    return is_id(job->id) && request_name_parse(job->name, strlen(job->name), &class, &entry) &&
           entry.ms + (uint64_t)JOB_TIMEOUT_MS + KEPT_MS > clock_unix_ms();
}

/* --- Calls and answers -------------------------------------------------------------------------------------------- */

void job_put_meta(const struct call *call, char meta[JOB_META_MAX])
{
    snprintf(meta, JOB_META_MAX, "%s %d %u %u", call->dialect->path, call->single, call->top_n, call->forms);
}

bool job_read_call(struct slice info, struct call *call)
{
    char meta[JOB_META_MAX], path[JOB_META_MAX];
    int single;
    uint64_t count;
    if (!json_member_text(info.bytes, info.length, "meta", meta, sizeof meta) ||
        sscanf(meta, "%127s %d %u %u", path, &single, &call->top_n, &call->forms) != 4 || !dialect_find(path)) {
        return false;
    }
    call->dialect = dialect_find(path);
    call->task = call->dialect->task;
    call->single = single;
    call->chat = call->dialect == &openai_chat;
    if (!json_member_number(info.bytes, info.length, "count", &count)) { count = call->task == TASK_GENERATE; }
    call->text_count = (uint32_t)count;
    return true;
}

bool job_is_of_tenant(struct slice info, const char *tenant)
{
    char its[KEY_NAME_MAX + 2];
    (void)json_member_text(info.bytes, info.length, "tenant", its, sizeof its);
    return strcmp(its, tenant) == 0;
}

void job_put(const char *id, const char *status, struct buffer *to)
{
    buffer_json(to, "{'id':%s,'object':'job','status':%s}", id, status);
}
