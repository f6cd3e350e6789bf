/* The properties that all workers of a queue must share: its model, which the first worker pins, and a precision, which
 * an operator may pin. */
#include <stdio.h>
#include <string.h>

#include "cli/invocation.h"
#include "cli/print.h"
#include "engine/engine.h"
#include "operator/heartbeats.h"

struct own {
    char *precision;
};

static bool is_precision(const char *text)
{
    enum precision precision;
    struct err ignored;
    return strcmp(text, "any") == 0 ||
           (precision_parse(text, &precision, &ignored) == STATUS_OK && precision != PRECISION_AUTO);
}

#define OWN(name) .key = #name, .offset = offsetof(struct own, name)
static const struct setting own_settings[] = {
    {OWN(precision), .type = SETTING_TEXT, .value = "WORD", .accepts = is_precision,
     .expects = "f32, bf16, f16, int8, int8_all or any",
     .help = "f32|bf16|f16|int8|int8_all: workers of another precision do not start; any: all do [as it is]"},
};

/* Names the workers with another precision. They continue, and would be refused only when they connect again. */
static enum status name_others(struct session *session, const char *precision, struct err *err)
{
    struct heartbeats heartbeats;
    char other[16];
    enum status status = heartbeats_read(session, &heartbeats, err);
    for (size_t i = 0; status == STATUS_OK && i < heartbeats.count; i++) {
        const struct heartbeat_line *line = &heartbeats.lines[i];
        heartbeat_value(line, "precision", other, sizeof other);
        if (line->alive && other[0] != '\0' && strcmp(other, precision) != 0) {
            printf("%s computes in %s and goes on: start it again with --precision %s\n", line->worker, other,
                   precision);
        }
    }
    heartbeats_free(&heartbeats);
    return status;
}

static enum status pin_queue(struct session *session, const struct invocation *invocation, struct err *err)
{
    const struct own *own = invocation->own;
    char key[SESSION_KEY], precision[16];
    const struct resp_value *pinned;
    session_key(session, "meta", "", key);
    if (own->precision && strcmp(own->precision, "any") == 0) {
        TRY(SESSION_ASK(session, &pinned, err, "HDEL", key, "precision"));
    } else if (own->precision) {
        TRY(SESSION_ASK(session, &pinned, err, "HSET", key, "precision", own->precision));
    }
    TRY(SESSION_ASK(session, &pinned, err, "HMGET", key, "model_id", "precision", "model"));
    if (pinned->type != RESP_ARRAY || pinned->count != 3) {
        return err_set(err, STATUS_INTERNAL, "HMGET answered in an unknown shape");
    }
    const char *model = session_text(&pinned->items[0]), *name = session_text(&pinned->items[2]);
    print_heading(session);
    snprintf(precision, sizeof precision, "%s", session_text(&pinned->items[1]));
    fputs("model     ", stdout);
    print_bytes(stdout, model[0] != '\0' ? model : "none yet", strlen(model[0] != '\0' ? model : "none yet"));
    if (name[0] != '\0') {
        fputs(" (", stdout);
        print_bytes(stdout, name, strlen(name));
        putchar(')');
    }
    printf("\nprecision %s\n", precision[0] != '\0' ? precision : "any");
    return precision[0] != '\0' ? name_others(session, precision, err) : STATUS_OK;
}

static int run_pin(struct invocation *invocation)
{
    const struct own *own = invocation->own;
    return own->precision ? invocation_run_one(invocation, pin_queue) : invocation_run(invocation, pin_queue);
}

const struct subcommand command_pin = {
    .name = "pin",
    .bit = FOR_OPERATOR,
    .summary = "Show or set what all workers of a queue must compute in",
    .explanation =
        "Vectors of different precisions differ in their last digits. A worker of another precision than the\n"
        "pinned one ends when it joins, and says so; those that run go on. Without options: what is pinned. The\n"
        "model is pinned by the queue's first worker, for good.",
    OWN_OPTIONS(own_settings, struct own),
    .run = run_pin,
};
