/* The Lua scripts: one transition of a request each, from lua/, embedded when the program is built.
 *
 * Loaded on every connect and called by digest. A server that has forgotten them (SCRIPT FLUSH) is told them again,
 * once for each call, and the call is repeated. */
#ifndef IO_SCRIPTS_H
#define IO_SCRIPTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "io/connection.h"

/* In the order of cmake/Scripts.cmake. */
enum script {
    SCRIPT_SETTLE,
    SCRIPT_DEFER,
    SCRIPT_PROMOTE,
    SCRIPT_RECLAIM,
    SCRIPT_RELEASE,
    SCRIPT_CHARGE,
    SCRIPT_JOIN,
    SCRIPT_RENEW,
    SCRIPT_CANCEL,
    SCRIPT_TRACK,
    SCRIPT_PULSE,
    SCRIPT_SHED,
    SCRIPT_FAIR,
    SCRIPT_SWEEP,
    SCRIPT_REQUEUE,
    SCRIPT_CONTROL,
    SCRIPT_MEND,
    SCRIPT_GROUP,
    SCRIPT_COUNT,
};

/* A script as it is embedded. */
struct script_source {
    const char *name;
    const char *text;
    size_t length;
};

extern const struct script_source script_sources[SCRIPT_COUNT];

enum { SCRIPT_DIGEST = 40 };

/* The scripts as one connection knows them; lives as long as its owner wants, calls belong to the connection. */
struct scripts {
    struct connection *connection;
    char digest[SCRIPT_COUNT][SCRIPT_DIGEST + 1];
    uint64_t reloaded; /* times a script was missing */
    unsigned loading;  /* answers to come */
    void *context;
    void (*on_loaded)(void *context, const struct err *err); /* NULL: all are loaded */
};

/* Loads all scripts over `scripts->connection`; on_loaded comes from the event loop, unless the connection dies: then
 * only on_down of the connection says so. Errors: as connection_command. */
MUST_CHECK enum status scripts_load(struct scripts *scripts, struct err *err);

/* Begins a call: appends EVALSHA, the digest and the number of keys; the caller appends keys and arguments. */
void script_begin(const struct scripts *scripts, enum script script, size_t keys, struct command *command);

/* Sends the call; the answer comes as for connection_command.
 * Owns: takes the command's bytes (they are kept for a repetition), also when it fails. Errors: as connection_command.
 */
MUST_CHECK enum status script_send(struct scripts *scripts, struct command *command, uint32_t timeout_ms,
                                   connection_reply_fn *reply, void *context, struct err *err);

#endif
