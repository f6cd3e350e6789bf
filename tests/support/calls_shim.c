/* A preloaded library that writes down, in the file that CALLS_SHIM names, in which order a process makes names and
 * data durable: a line `call path` for each rename (of the new name), unlink, fsync and fdatasync that succeeded. Or it
 * kills the process before its CALLS_SHIM_KILL-th call that changes or syncs a file, the first being 1. With
 * CALLS_SHIM_FREE every disk has 1 GiB, and this number of bytes is free. */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

static void count(void)
{
    static atomic_long calls;
    const char *last = getenv("CALLS_SHIM_KILL");
    if (last && atomic_fetch_add(&calls, 1) + 1 >= atol(last)) { raise(SIGKILL); }
}

static int note(const char *call, const char *path, int result)
{
    char line[PATH_MAX + 32];
    const char *name = getenv("CALLS_SHIM");
    int fd = result == 0 && name ? open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (fd >= 0) {
        int length = snprintf(line, sizeof line, "%s %s\n", call, path);
        if (syscall(SYS_write, fd, line, (size_t)length) != length) { abort(); }
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
    count();
    return note("rename", to, real(from, to));
}

int unlink(const char *path)
{
    int (*real)(const char *);
    *(void **)&real = dlsym(RTLD_NEXT, "unlink");
    count();
    return note("unlink", path, real(path));
}

int fsync(int fd)
{
    int (*real)(int);
    *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    count();
    return note_fd("fsync", fd, real(fd));
}

int fdatasync(int fd)
{
    int (*real)(int);
    *(void **)&real = dlsym(RTLD_NEXT, "fdatasync");
    count();
    return note_fd("fdatasync", fd, real(fd));
}

ssize_t write(int fd, const void *bytes, size_t length)
{
    count();
    return syscall(SYS_write, fd, bytes, length);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at)
{
    count();
    return syscall(SYS_pwrite64, fd, bytes, length, at);
}

int ftruncate64(int fd, off64_t length)
{
    count();
    return (int)syscall(SYS_ftruncate, fd, length);
}

int mkdir(const char *path, mode_t mode)
{
    count();
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int statvfs64(const char *path, struct statvfs64 *out)
{
    int (*real)(const char *, struct statvfs64 *);
    const char *bytes = getenv("CALLS_SHIM_FREE");
    *(void **)&real = dlsym(RTLD_NEXT, "statvfs64");
    int result = real(path, out);
    if (bytes) {
        out->f_frsize = 1;
        out->f_blocks = 1 << 30;
        out->f_bavail = (fsblkcnt_t)atoll(bytes);
    }
    return result;
}
