/* A handler has no argument of its own, so the flag is the one variable here that belongs to the whole process. */
#include "cli/interrupt.h"

#include <stddef.h>

static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    caught = number;
}

const volatile sig_atomic_t *interrupt_listen(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND}; /* reads are interrupted */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return &caught;
}
