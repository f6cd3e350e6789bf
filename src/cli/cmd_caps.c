/* The caps of a queue: how many unread requests a class may have before new ones are refused, and how many delayed
 * requests may wait. */
#include <stdio.h>

#include "cli/invocation.h"
#include "operator/orders.h"

struct own {
    int64_t high, normal, low, later;
};

#define OWN(name) .key = #name, .offset = offsetof(struct own, name)
/* clang-format off */
#define CAP(name, text) {OWN(name), .type = SETTING_INTEGER, .fallback = "-1", .least = -1, .most = 1000000000000, .value = "N", .help = text}
static const struct setting own_settings[] = {
    CAP(high, "unread entries of class high that may wait; 0 = no cap, -1 = as it is"),
    CAP(normal, "the same for class normal"),
    CAP(low, "the same for class low, which has no cap unless you give it one"),
    CAP(later, "requests that may wait for their time (delay); retries count, and are never refused"),
};
/* clang-format on */

static enum status set_caps(struct session *session, const struct invocation *invocation, struct err *err)
{
    const struct own *own = invocation->own;
    long long caps[CAPS] = {own->high, own->normal, own->low, own->later};
    print_heading(session);
    TRY(order_caps(session, caps, err));
    for (size_t i = 0; i < CAPS; i++) {
        if (caps[i] > 0) {
            printf("%-6s %lld\n", cap_names[i], caps[i]);
        } else {
            printf("%-6s none\n", cap_names[i]);
        }
    }
    return STATUS_OK;
}

const struct subcommand command_caps = {
    .name = "caps",
    .bit = FOR_OPERATOR,
    .summary = "Show or set how many requests may wait in a queue",
    .explanation =
        "Above its cap, the newest unread requests of a class are answered queue_full, with the time after which\n"
        "to try again; above that of later, requests that ask for a delay. The workers enforce caps, once a\n"
        "second: while none lives, a class grows on (`sluice stats` shows what is above). 0 removes a cap,\n"
        "and -1, like an option that is not given, leaves it as it is. The caps that are then in effect are\n"
        "printed. Where the configuration lists several queues and --queue names none of them, each gets the same\n"
        "caps.",
    OWN_OPTIONS(own_settings, struct own),
    .each = set_caps,
};
