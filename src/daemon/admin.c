#include "daemon/admin.h"

#include <openssl/crypto.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "compute/thread_pool.h"
#include "daemon/admin_job.h"
#include "operator/queues.h"

enum {
    JOBS = 16,              /* requests taken over but not yet answered */
    REDIS_MS = 2000,        /* for each answer of Redis */
    PATIENCE_MS = 8000,     /* a job that has waited longer is not begun: its client is about to give up */
    ANSWER_BYTES = 4 << 20, /* of any answer */
};

struct admin {
    struct admin_options options;
    char *token;
    uint64_t wrong, wrong_logged_ms; /* wrong tokens since the log last mentioned them, and when that was */
    struct thread_pool *pool;
    struct admin_job jobs[JOBS];
    atomic_bool closing;
    struct client *client; /* this and the rest belong to the thread */
    struct queue_walk walk;
    struct err walk_failed; /* why the last step of the walk failed; STATUS_OK: it did not */
};

/* ---- the thread ---- */

/* Connects, unless the connection of the last job still works. This is certain before anything is changed. */
static enum status connect_to_redis(struct admin *admin, struct session *session, struct err *err)
{
    const struct resp_value *reply;
    for (;;) {
        bool fresh = !admin->client;
        if (fresh) { TRY(client_open(admin->options.address, REDIS_MS, &admin->client, err)); }
        session->client = admin->client;
        if (fresh) { TRY(SESSION_ASK(session, &reply, err, "CLIENT", "SETNAME", "sluice-admin")); }
        enum status status = session_ask_time(session, err);
        if (status == STATUS_OK || fresh) { return status; }
        client_close(admin->client);
        admin->client = NULL;
    }
}

/* If Redis refused because a right is missing, adds how to grant it. */
static enum status add_remedy(const struct admin *admin, const char *queue, bool served, struct err *err)
{
    const char *user = admin->options.address->user ? admin->options.address->user : "default";
    size_t length = strlen(err->message), left = sizeof err->message - length;
    if (err->status != STATUS_DENIED || !strstr(err->message, "NOPERM")) { return err->status; }
    if (served) {
        snprintf(
            err->message + length, left,
            ". The daemon's login in Redis, %s, lacks the dashboard's rights: make-users.sh --dashboard gives them "
            "for good; at once: redis-cli ACL SETUSER %s '(~sluice:{%s}:paused +set +del)' "
            "'(%%R~sluice:{%s}:later +zscore)' +scan",
            user, user, queue, queue);
    } else {
        snprintf(
            err->message + length, left,
            ". The daemon's login in Redis, %s, is not for queue %s: use the dashboard of a daemon that serves it, or "
            "the sluice commands with --queue %s and its operator's login",
            user, queue, queue);
    }
    return err->status;
}

static bool is_lost(enum status status)
{
    return status == STATUS_UNAVAILABLE || status == STATUS_TIMEOUT || status == STATUS_NO_MEMORY;
}

/* Writes the queues of this Redis that the daemon does not serve, with an error in place of the counts if one cannot be
 * read; then why the list may leave some out. */
static enum status list_others(struct admin *admin, struct admin_job *job, struct session *session, struct buffer *to,
                               struct err *err)
{
    if (clock_now_ms() >= admin->walk.rests_until_ms) {
        admin->walk_failed = (struct err){0};
        enum status status = queues_walk(session, &admin->walk, &admin->walk_failed);
        if (is_lost(status)) { return err_set(err, status, "%s", admin->walk_failed.message); }
    }
    const struct queue_names *names = queues_names(&admin->walk);
    for (size_t i = 0; i < names->count; i++) {
        bool served = false;
        for (size_t own = 0; own < admin->options.queue_count; own++) {
            served = served || strcmp(admin->options.consumers[own].config->queue, names->items[i]) == 0;
        }
        if (served) { continue; }
        session->queue = names->items[i];
        job->queue = NULL;
        buffer_json(to, ",");
        enum status status = job->route->handle(job, session, to, err);
        if (is_lost(status)) { return status; }
        if (status == STATUS_OK) { continue; }
        (void)add_remedy(admin, session->queue, false, err);
        buffer_json(to, "{'served':false,'queue':%s,'error':%s}", session->queue, err->message);
    }
    buffer_json(to, "],'left_out':");
    session->queue = admin->options.consumers[0].config->queue;
    if (admin->walk_failed.status != STATUS_OK) {
        struct err why = admin->walk_failed;
        (void)add_remedy(admin, session->queue, true, &why);
        buffer_json(to, "%s", why.message);
    } else {
        buffer_json(to, "%s",
                    !admin->walk.whole ? "the search for other queues goes on"
                    : names->more      ? "there are more queues; these are the first by name"
                                       : "");
    }
    return STATUS_OK;
}

static enum status handle_job(struct admin *admin, struct admin_job *job, struct buffer *to, struct err *err)
{
    struct session session = {.address = {.user = admin->options.address->user}}; /* borrowed; a pause is in its name */
    TRY(connect_to_redis(admin, &session, err));
    if (job->name) {
        bool exists = true;
        session.queue = job->name;
        enum status status = job->queue ? STATUS_OK : queues_exists(&session, &exists, err);
        if (!exists && status == STATUS_OK) {
            return err_set(err, STATUS_NOT_FOUND, "this Redis has no queue %s", job->name);
        }
        buffer_json(to, job->route->all ? "{'queues':[" : "");
        if (status == STATUS_OK) { status = job->route->handle(job, &session, to, err); }
        buffer_json(to, job->route->all ? "]}" : "");
        return status == STATUS_OK ? status : add_remedy(admin, job->name, job->queue != NULL, err);
    }
    buffer_json(to, "{'queues':[");
    for (size_t i = 0; i < admin->options.queue_count; i++) {
        job->queue = &admin->options.consumers[i];
        session.queue = job->queue->config->queue;
        buffer_json(to, ",");
        enum status status = job->route->handle(job, &session, to, err);
        if (status != STATUS_OK) { return add_remedy(admin, session.queue, true, err); }
    }
    if (job->route->others) {
        TRY(list_others(admin, job, &session, to, err));
    } else {
        buffer_json(to, "]");
    }
    buffer_json(to, "}");
    return STATUS_OK;
}

static int status_of(enum status status)
{
    return status == STATUS_BAD_INPUT                                                               ? 400
           : status == STATUS_DENIED                                                                ? 403
           : status == STATUS_NOT_FOUND                                                             ? 404
           : status == STATUS_UNAVAILABLE || status == STATUS_TIMEOUT || status == STATUS_NO_MEMORY ? 503
                                                                                                    : 500;
}

static void answer_job(void *context, void *item)
{
    struct admin *admin = context;
    struct admin_job *job = item;
    struct err err = {0};
    enum status status = STATUS_UNAVAILABLE;
    struct buffer *answer = &job->reply.body;
    job->reply.status = 200;
    if (admin->closing || clock_now_ms() > job->since_ms + PATIENCE_MS) {
        (void)err_set(&err, status, "too much is asked at once");
    } else {
        status = handle_job(admin, job, answer, &err);
        bool usable =
            status == STATUS_OK || status == STATUS_BAD_INPUT || status == STATUS_NOT_FOUND || status == STATUS_DENIED;
        if (!usable) {
            client_close(admin->client);
            admin->client = NULL;
        }
    }
    buffer_string(answer, "\n");
    bool written = buffer_ok(answer), large = answer->length > ANSWER_BYTES;
    if (status == STATUS_OK && written && !large) { return; }
    if (status == STATUS_OK) {
        job->reply.status = written ? 413 : 503;
        (void)err_set(&err, status, written ? "the answer is larger than 4 MiB" : "no memory");
    } else {
        job->reply.status = status_of(status);
    }
    buffer_free(answer);
    http_error(&job->reply, job->reply.status, err.message);
}

/* ---- the I/O thread ---- */

/* Logs at most once a second, so that guessing tokens does not fill the log. */
static void log_wrong_token(struct admin *admin, const struct http_request *request)
{
    uint64_t now_ms = clock_now_ms();
    admin->wrong++;
    if (admin->wrong_logged_ms > 0 && now_ms - admin->wrong_logged_ms < 1000) { return; }
    log_warn("wrong_token", log_str("peer", request->peer), log_str("path", request->path),
             log_int("times", (int64_t)admin->wrong));
    admin->wrong = 0;
    admin->wrong_logged_ms = now_ms;
}

/* Returns 0 if the request is allowed, or the status and why not. */
static int check_token(struct admin *admin, const struct route *route, const struct http_request *request,
                       const char **error)
{
    static const char scheme[] = "Bearer ";
    const char *authorization = http_header(request, "Authorization");
    bool needed = route->post || !admin->options.open;
    if (!authorization && !needed) { return 0; }
    *error = "no token is configured: http_token_file names the file whose first line is it";
    if (!admin->token) { return 403; }
    *error = "the token is missing: Authorization: Bearer TOKEN";
    if (!authorization || strncasecmp(authorization, scheme, sizeof scheme - 1) != 0) { return 401; }
    *error = "the token is wrong";
    const char *token = authorization + sizeof scheme - 1;
    size_t length = strlen(admin->token);
    if (strlen(token) == length && CRYPTO_memcmp(token, admin->token, length) == 0) { return 0; }
    log_wrong_token(admin, request);
    return 401;
}

static int find_queue(const struct admin *admin, struct admin_job *job, const char **error)
{
    const struct admin_options *options = &admin->options;
    job->name = job->values[PARAM_queue];
    for (size_t i = 0; job->name && i < options->queue_count && !job->queue; i++) {
        if (strcmp(options->consumers[i].config->queue, job->name) == 0) { job->queue = &options->consumers[i]; }
    }
    *error = "a queue's name is 1 to 64 of a-z 0-9 _ . -";
    if (job->queue) { job->history = &options->histories[job->queue->number]; }
    if (job->name) { return job->queue || queue_name_is(job->name, strlen(job->name)) ? 0 : 404; }
    *error = "this daemon serves several queues: say which";
    if (job->route->all) { return 0; }
    if (options->queue_count > 1) { return 400; }
    job->queue = options->consumers;
    job->history = options->histories;
    job->name = job->queue->config->queue;
    return 0;
}

/* Reads the parameters into a job. Returns 0, or the status and why not. */
static int read_job(const struct admin *admin, struct admin_job *job, const struct http_request *request,
                    const char **error)
{
    bool post = request->method == HTTP_POST;
    *error = post ? admin_job_read_body(job, request->body, request->body_length)
                  : admin_job_read_query(job, request->query);
    if (*error) { return 400; }
    *error = "a POST has no query";
    if (post && request->query[0] != '\0') { return 400; }
    *error = admin_job_missing(job);
    return *error ? 400 : find_queue(admin, job, error);
}

enum http_when admin_answer(struct admin *admin, const struct http_request *request, struct http_reply *reply)
{
    const struct route *route = admin_route(request->path);
    const char *error;
    if (!route) { return http_error(reply, 404, "there is no such path"); }
    if (route->post != (request->method == HTTP_POST)) {
        return http_error(reply, 405, route->post ? "POST it" : "GET it");
    }
    int status = check_token(admin, route, request, &error);
    if (status != 0) { return http_error(reply, status, error); }
    struct admin_job *job = admin->jobs;
    while (job < admin->jobs + JOBS && job->route) { job++; }
    if (job == admin->jobs + JOBS) { return http_error(reply, 503, "too much is asked at once"); }
    *job = (struct admin_job){
        .closing = &admin->closing, .route = route, .number = request->number, .since_ms = clock_now_ms()};
    status = read_job(admin, job, request, &error);
    if (status != 0) {
        admin_job_free(job);
        return http_error(reply, status, error);
    }
    if (route->answer) {
        enum http_when when = route->answer(job, reply);
        admin_job_free(job);
        return when;
    }
    thread_pool_put(admin->pool, job);
    return HTTP_LATER;
}

void admin_take(struct admin *admin, struct http *http)
{
    struct admin_job *job;
    while (admin && (job = thread_pool_take(admin->pool))) {
        if (job->route->post) {
            char **values = job->values, *what = values[PARAM_letter] ? values[PARAM_letter] : values[PARAM_worker];
            if (!what) { what = values[PARAM_id]; }
            log_info("admin", log_str("path", job->route->path), log_str("queue", job->name), log_str("what", what),
                     log_int("status", job->reply.status));
        }
        http_answer(http, job->number, &job->reply);
        admin_job_free(job);
    }
}

/* ---- opening and closing ---- */

enum status admin_open(const struct admin_options *options, struct admin **out, struct err *err)
{
    struct admin *admin = calloc(1, sizeof *admin);
    struct thread_pool_options pool = {.name = "admin",
                                       .threads = 1,
                                       .capacity = JOBS,
                                       .wake_fd = options->wake_fd,
                                       .work = answer_job,
                                       .contexts = admin,
                                       .context_bytes = sizeof *admin};
    if (!admin) { return err_set(err, STATUS_NO_MEMORY, "no memory for the admin API"); }
    admin->options = *options;
    admin->token = options->token ? strdup(options->token) : NULL;
    enum status status = options->token && !admin->token ? err_set(err, STATUS_NO_MEMORY, "no memory for the token")
                                                         : thread_pool_open(&pool, &admin->pool, err);
    if (status != STATUS_OK) {
        free(admin->token);
        free(admin);
        return status;
    }
    *out = admin;
    return STATUS_OK;
}

void admin_close(struct admin *admin)
{
    if (!admin) { return; }
    admin->closing = true;
    thread_pool_close(admin->pool);
    for (size_t i = 0; i < JOBS; i++) { admin_job_free(&admin->jobs[i]); }
    client_close(admin->client);
    if (admin->token) { explicit_bzero(admin->token, strlen(admin->token)); }
    free(admin->token);
    free(admin);
}
