/* Reports this process's state to the supervisor that started it, as systemd's services of Type=notify do: one datagram
 * to the socket that NOTIFY_SOCKET names. Without a supervisor that asks for it, nothing is sent. */
#ifndef DAEMON_NOTIFY_H
#define DAEMON_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

/* Sends a state, such as "READY=1", and does not block. False if it may succeed later: the supervisor's buffer is full,
 * or it is being started again. Thread: any. */
bool notify_send(const char *state);

/* The interval in which to send "WATCHDOG=1": half of the time after which the supervisor takes this process for hung.
 * 0: never. Units: us. */
uint64_t notify_watchdog_us(void);

#endif
