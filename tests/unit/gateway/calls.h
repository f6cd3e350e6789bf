/* Bodies in the tests of dialects. */
#ifndef TESTS_CALLS_H
#define TESTS_CALLS_H

#include "harness.h"
#include "quoted.h"

#include "gateway/body.h"
#include "gateway/dialect.h"

/* Reads a body, in which ' stands for ", that must be good. Owns: the caller ends the call. */
static inline struct call good_call(const char *path, const char *body)
{
    struct call call;
    struct fault fault = {.message = ""};
    const char *json = quoted(body);
    if (!body_parse(dialect_find(path), json, strlen(json), &call, &fault)) { fail_msg("%s: %s", body, fault.message); }
    return call;
}

/* Reads a body that must be refused with this status and message. */
static inline void assert_refused(const char *path, const char *body, size_t length, int status, const char *message)
{
    struct call call;
    struct fault fault = {.message = ""};
    if (body_parse(dialect_find(path), body, length, &call, &fault)) { fail_msg("%s: was accepted", body); }
    call_free(&call);
    if (fault.status != status || strcmp(fault.message, message) != 0) {
        fail_msg("%s: %d %s, not %d %s", body, fault.status, fault.message, status, message);
    }
}

static inline void assert_slice(struct slice slice, const char *text)
{
    if (slice.length != strlen(text) || memcmp(slice.bytes ? slice.bytes : "", text, slice.length) != 0) {
        fail_msg("'%.*s', not '%s'", (int)slice.length, slice.bytes, text);
    }
}

/* The call's texts, with commas between them and ' for ". */
static inline void assert_texts(const struct call *call, uint32_t count, const char *texts)
{
    struct buffer joined = {0};
    for (uint32_t i = 0; i < call->text_count; i++) {
        buffer_string(&joined, i > 0 ? "," : "");
        buffer_append(&joined, call->texts[i].bytes, call->texts[i].length);
    }
    assert_int_equal(call->text_count, count);
    assert_slice((struct slice){joined.data, joined.length}, quoted(texts));
    buffer_free(&joined);
}

/* The rendered answer is this, with ' for ". */
static inline void assert_answer(const struct call *call, const struct answer *answer, const char *expected)
{
    struct buffer body = {0};
    dialect_render(call, answer, &body);
    assert_true(buffer_ok(&body));
    buffer_append(&body, "", 1);
    assert_string_equal(body.data, quoted(expected));
    buffer_free(&body);
}

static inline void assert_fault_body(const char *path, const struct fault *fault, const char *expected)
{
    struct buffer body = {0};
    dialect_render_fault(dialect_find(path), fault, &body);
    buffer_append(&body, "", 1);
    assert_string_equal(body.data, quoted(expected));
    buffer_free(&body);
}

#endif
