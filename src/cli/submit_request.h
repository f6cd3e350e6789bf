/* What `sluice submit` may say of a request: its options, and the XADD that they become. */
#ifndef CLI_SUBMIT_REQUEST_H
#define CLI_SUBMIT_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "io/client.h"
#include "serve/setting.h"
#include "work/request.h"

/* The command's own options. */
struct submit_options {
    char *input, *id, *delay, *expires_in, *tenant, *meta, *results;
    int encoding; /* 0: none is named; else enum encoding + 1 */
    int class;    /* enum request_class */
    int64_t ttl, timeout_s, max_attempts;
    bool wait, inputs, track;
};

/* The rows of the options. */
enum { SUBMIT_SETTINGS = 15 };
extern const struct setting submit_settings[];

/* Sends the XADD of one request to `queue`; `name` is `text` or `inputs`. The answer is the entry's id.
 * Errors: as client_send. */
MUST_CHECK enum status submit_send(const struct submit_options *options, const char *queue, struct client *client,
                                   const char *name, const char *value, size_t length, struct err *err);

/* Writes the name of a request from the entry id that XADD answered. */
void submit_name(const struct submit_options *options, const char *entry, char name[REQUEST_NAME_MAX]);

/* Appends a text to a JSON array; the caller closes it with a bracket. */
void submit_add_input(struct buffer *inputs, const char *text, size_t length);

#endif
