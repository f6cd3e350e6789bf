#include "daemon/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

bool notify_send(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = path ? strlen(path) : 0;
    bool known = length > 1 && length < sizeof address.sun_path && (path[0] == '/' || path[0] == '@');
    if (!known) { return true; }
    memcpy(address.sun_path, path, length);
    if (path[0] == '@') { address.sun_path[0] = '\0'; } /* not a file: an abstract socket */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) { return false; }
    ssize_t sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
    close(fd);
    return sent >= 0;
}

uint64_t notify_watchdog_us(void)
{
    const char *interval = getenv("WATCHDOG_USEC"), *process = getenv("WATCHDOG_PID");
    bool ours = interval && (!process || strtoll(process, NULL, 10) == getpid());
    return ours ? strtoull(interval, NULL, 10) / 2 : 0;
}
