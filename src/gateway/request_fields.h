/* From a call and the headers beside it to the fields of requests, in the words of docs/protocol.md. */
#ifndef GATEWAY_REQUEST_FIELDS_H
#define GATEWAY_REQUEST_FIELDS_H

#include "gateway/dialect.h"
#include "gateway/jobs.h"
#include "http/server.h"

enum { CALL_TIMEOUT_MOST_S = 86400, REQUEST_FIELDS_MOST = 24 };

/* The wishes that the headers of a call express. */
struct wishes {
    enum request_class class;
    uint64_t timeout_ms;
    char *tenant, *traceparent, *tracestate; /* NULL: not given */
};

/* Reads the headers. `async`: its client does not wait; tenant: that of its key, or NULL. Owns: the caller ends the
 * wishes with wishes_free, also after an error. False: the fault says why. */
MUST_CHECK bool wishes_read(struct wishes *wishes, const struct call *call, const struct http_request *request,
                            bool async, const char *tenant, struct fault *fault);

void wishes_free(struct wishes *wishes);

/* The fields of a request; their bytes are those of the call, the wishes, the texts and this struct. */
struct request_fields {
    struct entry_field items[REQUEST_FIELDS_MOST]; /* [count] */
    size_t count;
    char dims[16], max_tokens[16], seed[24], meta[JOB_META_MAX];
};

/* Appends `count` of the call's texts, from number `first` on, as the field for them has them. TASK_GENERATE: one. */
void put_request_texts(const struct call *call, uint32_t first, uint32_t count, struct buffer *to);

/* Fills the fields of a request with these texts, but not its `id`. `async`: its reply must say which call it answers.
 */
void fill_request_fields(const struct call *call, const struct wishes *wishes, const char *id,
                         const struct buffer *texts, bool async, struct request_fields *fields);

#endif
