/* Tells the supervisor that started this process how it is, as systemd's services of Type=notify do: one datagram to
 * the socket that NOTIFY_SOCKET names. Without a supervisor that asks for it, nothing is sent. */
#ifndef DAEMON_NOTIFY_H
#define DAEMON_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

/* Sends a state, such as "READY=1", and does not block. False if it may succeed later: the supervisor's buffer is full,
 * or it is being started again. Thread: any. */
bool notify_send(const char *state);

/* How often the supervisor wants "WATCHDOG=1": half of the time after which it takes this process for hung. 0: never.
 * Units: us. */
uint64_t notify_watchdog_us(void);

#endif
