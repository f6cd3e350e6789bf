/* Lines are built in a buffer of fixed size and wait in another one: logging works when memory has run out. A line that
 * is too long is cut inside its last value and still ends properly.
 *
 * A thread of its own writes them, because any write may wait: for a reader of a pipe or a socket, for a terminal that
 * was stopped, for a disk. Writing without waiting is no way out: O_NONBLOCK belongs to the open file, which other
 * processes share, and a file has none. */
#include "base/log.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/system.h"
#include "base/utf8.h"

enum {
    LINE_BYTES = 4096,       /* of a line and of a write: a pipe takes this many bytes whole (PIPE_BUF) */
    LINE_TAIL = 8,           /* room kept for the closing quote, brace and newline */
    WAITING_BYTES = 1 << 20, /* only the part that lines have filled uses memory */
    GATHER_MS = 1,
    FLUSH_MS = 1000,
};

static const int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

enum { CRASHES = sizeof crashes / sizeof crashes[0] };

/* The log of the process: the only object that is better global than passed. */
static struct {
    atomic_int least; /* enum log_level; changes while threads run */
    enum log_format format;
    int fd;

    pthread_mutex_t lock;
    pthread_cond_t wake; /* for the thread: there are lines */
    bool started;
    char waiting[WAITING_BYTES]; /* a ring of whole lines; the `length` bytes from `first` on are not written yet */
    size_t first, length;
    bool full;           /* lines are dropped, even those that would fit, until the log says so */
    uint64_t unsaid;     /* dropped lines that the log has not reported yet */
    atomic_bool written; /* nothing waits */
    atomic_uint_least64_t dropped;

    bool torn; /* the thread's: the last write ended inside a line */
    struct sigaction before[CRASHES];
} sink = {.least = LOG_INFO,
          .format = LOG_TEXT,
          .fd = 2,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .wake = PTHREAD_COND_INITIALIZER,
          .written = true};

static const char *const level_names[] = {"debug", "info", "warn", "error"};

struct line {
    char data[LINE_BYTES];
    size_t length;
};

struct log_field log_str(const char *key, const char *value)
{
    return log_bytes(key, value ? value : "", value ? strlen(value) : 0);
}

struct log_field log_bytes(const char *key, const char *value, size_t length)
{
    return (struct log_field){.key = key, .kind = LOG_KIND_STR, .string = value, .length = length};
}

struct log_field log_int(const char *key, int64_t value)
{
    return (struct log_field){.key = key, .kind = LOG_KIND_INT, .integer = value};
}

struct log_field log_double(const char *key, double value)
{
    return (struct log_field){.key = key, .kind = LOG_KIND_DOUBLE, .real = value};
}

void log_set_level(enum log_level least)
{
    atomic_store_explicit(&sink.least, (int)least, memory_order_relaxed);
}

void log_setup(enum log_level least, enum log_format format, int fd)
{
    (void)log_flush();
    log_set_level(least);
    sink.format = format;
    sink.fd = fd;
}

static void put_text(struct line *line, const char *format, ...) PRINTF_LIKE(2, 3);

static void put_text(struct line *line, const char *format, ...)
{
    size_t room = sizeof line->data - LINE_TAIL - line->length;
    va_list args;
    va_start(args, format);
    int written = vsnprintf(line->data + line->length, room, format, args);
    va_end(args);
    if (written > 0) { line->length += (size_t)written < room ? (size_t)written : room - 1; }
}

static void put_escaped(struct line *line, const char *bytes, size_t length)
{
    size_t used;
    for (size_t i = 0; i < length && line->length + JSON_ESCAPE_BYTES + LINE_TAIL < sizeof line->data; i += used) {
        line->length += json_escaped(line->data + line->length, bytes + i, length - i, &used);
    }
}

/* Returns whether a value needs no quotes. */
static bool is_plain(const char *bytes, size_t length)
{
    for (size_t i = 0, size; i < length; i += size) {
        size = utf8_printable(bytes + i, length - i);
        if (size == 0 || strchr(" \"=", bytes[i])) { return false; }
    }
    return length > 0;
}

static void put_value(struct line *line, const struct log_field *field)
{
    if (field->kind == LOG_KIND_INT) {
        put_text(line, "%lld", (long long)field->integer);
    } else if (field->kind == LOG_KIND_DOUBLE) {
        put_text(line, sink.format == LOG_JSON && !isfinite(field->real) ? "null" : "%.6g", field->real);
    } else if (sink.format == LOG_TEXT && is_plain(field->string, field->length)) {
        put_escaped(line, field->string, field->length);
    } else {
        put_text(line, "\"");
        put_escaped(line, field->string, field->length);
        line->data[line->length++] = '"';
    }
}

static void build_line(struct line *line, enum log_level level, const struct log_line *log_line)
{
    uint64_t now_ms = clock_unix_ms();
    time_t seconds = (time_t)(now_ms / 1000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    char stamp[32];
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);

    bool json = sink.format == LOG_JSON;
    line->length = 0;
    put_text(line, json ? "{\"time\":\"%s.%03uZ\",\"level\":\"%s\",\"event\":\"%s\"" : "%s.%03uZ %s %s", stamp,
             (unsigned)(now_ms % 1000), level_names[level], log_line->event);
    for (size_t i = 0; i < sizeof log_line->fields / sizeof log_line->fields[0]; i++) {
        const struct log_field *field = &log_line->fields[i];
        if (field->kind == LOG_KIND_NONE || line->length + 128 > sizeof line->data) { break; }
        put_text(line, json ? ",\"%s\":" : " %s=", field->key);
        put_value(line, field);
    }
    if (json) { line->data[line->length++] = '}'; }
    line->data[line->length++] = '\n';
}

/* ---- the waiting lines; under the lock ---- */

static void count_dropped(uint64_t lines)
{
    sink.unsaid += lines;
    atomic_fetch_add(&sink.dropped, lines);
}

static void push_line(const struct line *line)
{
    sink.full = sink.full || line->length > WAITING_BYTES - sink.length;
    if (sink.full) {
        count_dropped(1);
        return;
    }
    size_t at = (sink.first + sink.length) % WAITING_BYTES;
    size_t straight = line->length < WAITING_BYTES - at ? line->length : WAITING_BYTES - at;
    memcpy(sink.waiting + at, line->data, straight);
    memcpy(sink.waiting, line->data + straight, line->length - straight);
    sink.length += line->length;
    atomic_store(&sink.written, false);
}

/* Copies as many lines as fit in one write. Shapes: to [LINE_BYTES]; returns how many bytes were copied. */
static size_t copy_lines(char *to)
{
    size_t size = sink.length < LINE_BYTES ? sink.length : LINE_BYTES;
    size_t straight = size < WAITING_BYTES - sink.first ? size : WAITING_BYTES - sink.first;
    memcpy(to, sink.waiting + sink.first, straight);
    memcpy(to + straight, sink.waiting, size - straight);
    while (to[size - 1] != '\n') { size--; }
    return size;
}

/* Adds the line that reports the dropped ones. */
static void say_dropped(void)
{
    struct line line;
    uint64_t lines = sink.unsaid;
    sink.unsaid = 0;
    sink.full = false;
    if (LOG_WARN < atomic_load(&sink.least)) { return; }
    build_line(
        &line, LOG_WARN,
        &(struct log_line){"log_lines_dropped",
                           {log_int("lines", (int64_t)lines), log_int("total", (int64_t)atomic_load(&sink.dropped))}});
    push_line(&line);
}

/* ---- the thread ---- */

/* Returns how much was written before a write failed. Another process may have made the open file non-blocking. */
static size_t write_bytes(const char *bytes, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t wrote = write(sink.fd, bytes + done, size - done);
        if (wrote > 0) {
            done += (size_t)wrote;
        } else if (wrote < 0 && errno == EAGAIN) {
            (void)poll(&(struct pollfd){.fd = sink.fd, .events = POLLOUT}, 1, -1);
        } else if (wrote == 0 || errno != EINTR) {
            break;
        }
    }
    return done;
}

/* Ends a line that a full disk has cut before it writes the next one. Returns how many lines were not written whole. */
static uint64_t write_lines(const char *lines, size_t size)
{
    uint64_t left = 0;
    sink.torn = sink.torn && write_bytes("\n", 1) == 0;
    size_t done = sink.torn ? 0 : write_bytes(lines, size);
    sink.torn = sink.torn || (done > 0 && lines[done - 1] != '\n');
    for (size_t i = done; i < size; i++) { left += lines[i] == '\n'; }
    return left;
}

/* Lines that come within a millisecond after others do not wake the thread: a wake costs more than a line. */
static void *write_log(void *context)
{
    (void)context;
    char lines[LINE_BYTES];
    pthread_setname_np(pthread_self(), "log");
    pthread_mutex_lock(&sink.lock);
    for (;;) {
        while (sink.length == 0) { pthread_cond_wait(&sink.wake, &sink.lock); }
        size_t size = copy_lines(lines);
        pthread_mutex_unlock(&sink.lock);
        uint64_t left = write_lines(lines, size);
        pthread_mutex_lock(&sink.lock);
        sink.length -= size;
        sink.first = sink.length == 0 ? 0 : (sink.first + size) % WAITING_BYTES;
        if (left > 0) {
            count_dropped(left);
            sink.full = false;
        } else if (sink.unsaid > 0 && WAITING_BYTES - sink.length >= LINE_BYTES) {
            say_dropped();
        }
        if (sink.length == 0) {
            atomic_store(&sink.written, true);
            pthread_mutex_unlock(&sink.lock);
            (void)poll(NULL, 0, GATHER_MS);
            pthread_mutex_lock(&sink.lock);
        }
    }
    return NULL;
}

bool log_flush(void)
{
    for (int i = 0; i < FLUSH_MS && !atomic_load(&sink.written); i++) { (void)poll(NULL, 0, 1); }
    return atomic_load(&sink.written);
}

static void flush_at_exit(void)
{
    (void)log_flush();
}

/* The other threads still run, so the last lines can be written. Then the signal does what it did before: a fault
 * happens again, any other signal is sent again. */
static void on_crash(int number, siginfo_t *info, void *context)
{
    (void)context;
    (void)log_flush();
    for (size_t i = 0; i < CRASHES; i++) {
        if (crashes[i] == number) { sigaction(number, &sink.before[i], NULL); }
    }
    if (info->si_code <= 0) { raise(number); }
}

/* Starts the thread. All signals are blocked there, so a reader that is gone is an error (EPIPE). */
static bool start_writer(void)
{
    pthread_t thread;
    sink.started = thread_start(&thread, write_log, NULL) == 0;
    if (!sink.started) { return false; }
    pthread_detach(thread);
    struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < CRASHES; i++) { sigaction(crashes[i], &action, &sink.before[i]); }
    atexit(flush_at_exit);
    return true;
}

void log_write(enum log_level level, const struct log_line *log_line)
{
    if ((int)level < atomic_load_explicit(&sink.least, memory_order_relaxed)) { return; }
    struct line line;
    build_line(&line, level, log_line);
    pthread_mutex_lock(&sink.lock);
    if (sink.started || start_writer()) {
        push_line(&line);
    } else {
        count_dropped(write_lines(line.data, line.length));
    }
    pthread_mutex_unlock(&sink.lock);
    pthread_cond_signal(&sink.wake);
}

uint64_t log_dropped(void)
{
    return atomic_load(&sink.dropped);
}
