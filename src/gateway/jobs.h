/* Calls that can be found again: jobs (Prefer: respond-async), and calls with an Idempotency-Key. Everything about a
 * job is in its address, /v1/jobs/<queue>/<name>/<id>, and in its reply: any gateway answers for it. Pure functions. */
#ifndef GATEWAY_JOBS_H
#define GATEWAY_JOBS_H

#include "gateway/dialect.h"

struct http_request;

enum { JOB_TIMEOUT_MS = 86400000, JOB_ID_MAX = 96, JOB_META_MAX = 128 };

/* The address of a job: the part of the path after /v1/jobs/. */
struct job {
    struct slice queue;
    char name[REQUEST_NAME_MAX]; /* of the request */
    const char *id;              /* of the request: 128 random bits, or the digest of a call with an Idempotency-Key */
};

/* Reads an address, which must outlive the job; false if no job was ever there, or if it was so long ago that its reply
 * is gone. */
bool job_read(const char *address, struct job *job);

/* Makes an id of a job that nobody can guess. */
MUST_CHECK bool job_make_id(char id[JOB_ID_MAX]);

/* Makes the id of a call with an Idempotency-Key: whose it is (NULL: not known), the key and what was asked. */
MUST_CHECK bool job_id_of_key(const char *tenant, const char *key, const struct http_request *request,
                              char id[JOB_ID_MAX]);

/* Writes the part of a call that its answer needs, for the request's field `meta`; job_read_call reads it from the info
 * of the reply. False: the request was none of a job. */
void job_put_meta(const struct call *call, char meta[JOB_META_MAX]);
bool job_read_call(struct slice info, struct call *call);

/* Returns whether a reply with this info belongs to a tenant. */
bool job_is_of_tenant(struct slice info, const char *tenant);

/* Appends the body of an answer about a job. */
void job_put(const char *id, const char *status, struct buffer *to);

#endif
