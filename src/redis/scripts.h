/* The Lua scripts, embedded from lua/: each is one transition of a request.
 *
 * They are loaded on every connect and called by digest. If the server has forgotten them (SCRIPT FLUSH), they are
 * loaded again and the call is repeated, once. */
#ifndef REDIS_SCRIPTS_H
#define REDIS_SCRIPTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "redis/connection.h"
#include "redis/resp.h"

/* One for each lua/NAME.lua. */
enum script {
    SCRIPT_SETTLE,
    SCRIPT_DEFER,
    SCRIPT_PROMOTE,
    SCRIPT_RECLAIM,
    SCRIPT_ADDRESS,
    SCRIPT_RELEASE,
    SCRIPT_CHARGE,
    SCRIPT_JOIN,
    SCRIPT_RENEW,
    SCRIPT_CANCEL,
    SCRIPT_PULSE,
    SCRIPT_SHED,
    SCRIPT_FAIR,
    SCRIPT_SWEEP,
    SCRIPT_REQUEUE,
    SCRIPT_CONTROL,
    SCRIPT_LIST,
    SCRIPT_FIND,
    SCRIPT_MEND,
    SCRIPT_GROUP,
    SCRIPT_BUCKET,
    SCRIPT_TOKENS,
    SCRIPT_COUNT,
};

struct script_source {
    const char *name;
    const char *text;
    size_t length;
};

extern const struct script_source script_sources[SCRIPT_COUNT];

enum { SCRIPT_DIGEST = 40 };

/* The scripts of one connection. Its owner sets connection, context and on_loaded. */
struct scripts {
    struct connection *connection;
    char digest[SCRIPT_COUNT][SCRIPT_DIGEST + 1];
    unsigned loading;         /* answers not yet received */
    uint64_t calls, calls_ns; /* calls that were answered, and the sum of their times from sending to the answer */
    void *context;
    void (*on_loaded)(void *context, const struct err *err); /* NULL: all are loaded */
};

/* Loads all scripts. on_loaded comes from the event loop, or on_down of the connection if it dies. Errors: as
 * connection_command. */
MUST_CHECK enum status scripts_load(struct scripts *scripts, struct err *err);

/* Begins a call: appends EVALSHA, digest and number of keys; the caller appends keys and arguments. */
void script_begin(const struct scripts *scripts, enum script script, size_t keys, struct command *command);

/* Sends the call. Owns: takes the command's bytes, also on error; they are kept to repeat it. Errors: as
 * connection_command. */
MUST_CHECK enum status script_send(struct scripts *scripts, struct command *command, uint32_t timeout_ms,
                                   connection_reply_fn *reply, void *context, struct err *err);

#endif
