/* A name service that hangs on demand, around the real one, linked into the daemon of the fault tests with
 * --wrap=getaddrinfo: every name that ends in ".slow" is 127.0.0.1, and a lookup of one takes until the file that
 * SLOW_NAMES names is gone. */
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out);

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out)
{
    const char *gate = getenv("SLOW_NAMES"), *end = strrchr(host, '.');
    if (gate == NULL || end == NULL || strcmp(end, ".slow") != 0 || (hints->ai_flags & AI_NUMERICHOST) != 0) {
        return __real_getaddrinfo(host, port, hints, out);
    }
    while (access(gate, F_OK) == 0) { nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL); }
    return __real_getaddrinfo("127.0.0.1", port, hints, out);
}
