/* Ctrl-C as a wish to stop in order: the first SIGINT or SIGTERM sets a flag, the second one ends the process. */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include <signal.h>

/* Begins to listen. The flag that comes back is 0 until the first signal, then its number. Thread: before others start.
 */
const volatile sig_atomic_t *interrupt_listen(void);

#endif
