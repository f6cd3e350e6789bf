#include "daemon/admin_job.h"

#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "base/json.h"
#include "base/utf8.h"

enum kind { TEXT, NUMBER, TRUTH, TEXTS };

/* clang-format off */
#define ROW(name, kind, most) {#name, kind, most, #name " is missing"},
static const struct { const char *name; enum kind kind; size_t most; const char *missing; } params[PARAMS] = {PARAMETERS(ROW)};
/* clang-format on */

static bool find_param(const struct route *route, const char *name, size_t length, enum param *out)
{
    for (*out = 0; *out < PARAMS; (*out)++) {
        bool same = strlen(params[*out].name) == length && memcmp(params[*out].name, name, length) == 0;
        if (same && ((route->may | route->must) & 1u << *out)) { return true; }
    }
    return false;
}

/* Keeps a value; returns the reason if it is not allowed. */
static const char *keep_value(struct admin_job *job, enum param param, const struct buffer *value)
{
    if (!buffer_ok(value)) { return "no memory"; }
    if (job->values[param]) { return "a parameter is there twice"; }
    if (params[param].kind == TEXT && value->length > params[param].most) { return "a parameter is too long"; }
    if (value->length > 0 && (memchr(value->data, '\0', value->length) || !utf8_valid(value->data, value->length))) {
        return "a parameter is not UTF-8, or has a NUL in it";
    }
    job->values[param] = strndup(value->data ? value->data : "", value->length);
    return job->values[param] ? NULL : "no memory";
}

static bool decode_percent(struct buffer *to, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        char c = text[i] == '+' ? ' ' : text[i];
        if (c == '%') {
            int high = length - i > 2 ? hex_digit(text[i + 1]) : -1, low = length - i > 2 ? hex_digit(text[i + 2]) : -1;
            if (high < 0 || low < 0) { return false; }
            c = (char)(high * 16 + low);
            i += 2;
        }
        buffer_append(to, &c, 1);
    }
    return true;
}

const char *admin_job_read_query(struct admin_job *job, const char *query)
{
    const char *problem = NULL;
    while (*query && !problem) {
        size_t length = strcspn(query, "&"), name = strcspn(query, "=&");
        struct buffer value = {0};
        enum param param;
        if (name == length) {
            problem = "the query is not name=value&...";
        } else if (!find_param(job->route, query, name, &param)) {
            problem = "the query has a parameter that this path does not know";
        } else if (!decode_percent(&value, query + name + 1, length - name - 1)) {
            problem = "a parameter is not percent-encoded";
        } else {
            problem = keep_value(job, param, &value);
        }
        buffer_free(&value);
        query += length + (query[length] == '&');
    }
    return problem;
}

/* Reads a value of the body, and checks that it is of the kind that the member has. */
static bool read_value(struct lexer *lexer, enum kind kind, struct buffer *value)
{
    const char *begin = lexer->at;
    size_t length;
    if (kind == TEXT) {
        return lexer_take(lexer, '"') && lexer_string(lexer, &begin, &length) &&
               buffer_json_decode(value, begin, length);
    }
    if (!lexer_value(lexer, 1)) { return false; }
    length = (size_t)(lexer->at - begin);
    buffer_append(value, begin, length);
    return kind == TEXTS   ? begin[0] == '['
           : kind == TRUTH ? length == 4 && memcmp(begin, "true", 4) == 0
                           : length <= 12 && strspn(begin, "0123456789") == length;
}

const char *admin_job_read_body(struct admin_job *job, const char *body, size_t length)
{
    struct lexer lexer = {body, body + length};
    struct lexer_member member = {0};
    const char *problem = NULL;
    if (!json_valid(body, length)) { return "the body is not JSON"; }
    while (!problem && lexer_next_member(&lexer, &member)) {
        struct buffer value = {0};
        enum param param;
        if (!find_param(job->route, member.name, member.length, &param)) {
            problem = "the body has a member that this path does not know";
        } else if (!read_value(&lexer, params[param].kind, &value)) {
            problem = "a member of the body is not of its kind";
        } else {
            problem = keep_value(job, param, &value);
        }
        buffer_free(&value);
    }
    return problem || member.whole ? problem : "the body is not a JSON object";
}

const char *admin_job_param_name(enum param param)
{
    return params[param].name;
}

const char *admin_job_missing(const struct admin_job *job)
{
    for (int i = 0; i < PARAMS; i++) {
        if ((job->route->must & 1u << i) && !job->values[i]) { return params[i].missing; }
    }
    return NULL;
}

void admin_job_free(struct admin_job *job)
{
    for (int i = 0; i < PARAMS; i++) { free(job->values[i]); }
    buffer_free(&job->reply.body);
    *job = (struct admin_job){0};
}
