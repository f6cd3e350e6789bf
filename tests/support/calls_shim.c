/* A preloaded library that writes down, in the file that CALLS_SHIM names, in which order a process makes names and
 * data durable: a line `call path` for each rename (of the new name), unlink, fsync and fdatasync that succeeded. */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int note(const char *call, const char *path, int result)
{
    char line[PATH_MAX + 32];
    int fd = result == 0 ? open(getenv("CALLS_SHIM"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (fd >= 0) {
        int length = snprintf(line, sizeof line, "%s %s\n", call, path);
        if (write(fd, line, (size_t)length) != length) { abort(); }
        close(fd);
    }
    return result;
}

static int note_fd(const char *call, int fd, int result)
{
    char link[64], path[PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0) { abort(); }
    return note(call, path, result);
}

int rename(const char *from, const char *to)
{
    int (*real)(const char *, const char *);
    *(void **)&real = dlsym(RTLD_NEXT, "rename");
    return note("rename", to, real(from, to));
}

int unlink(const char *path)
{
    int (*real)(const char *);
    *(void **)&real = dlsym(RTLD_NEXT, "unlink");
    return note("unlink", path, real(path));
}

int fsync(int fd)
{
    int (*real)(int);
    *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    return note_fd("fsync", fd, real(fd));
}

int fdatasync(int fd)
{
    int (*real)(int);
    *(void **)&real = dlsym(RTLD_NEXT, "fdatasync");
    return note_fd("fdatasync", fd, real(fd));
}
