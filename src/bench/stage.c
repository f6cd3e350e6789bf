#include "bench/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "config/config.h"

/* ---- children ---- */

/* Runs in the child and never returns. On an error it sends errno to the parent. */
static void become(const char *const *argv, char *const *environment, const char *log, pid_t parent, int report_fd)
{
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() == parent && out >= 0 && in >= 0 && dup2(in, 0) == 0 && dup2(out, 1) == 1 && dup2(out, 2) == 2) {
        signal(SIGPIPE, SIG_DFL);
        if (environment) {
            execvpe(argv[0], (char *const *)(uintptr_t)argv, environment);
        } else {
            execvp(argv[0], (char *const *)(uintptr_t)argv);
        }
    }
    int code = errno;
    ssize_t told = write(report_fd, &code, sizeof code);
    _exit(told == sizeof code ? 127 : 126);
}

enum status child_start(struct child *child, const char *name, const char *const *argv, char *const *environment,
                        const char *log, struct err *err)
{
    int pipe_fds[2], code = 0;
    pid_t parent = getpid();
    *child = (struct child){0};
    snprintf(child->name, sizeof child->name, "%s", name);
    snprintf(child->log, sizeof child->log, "%s", log);
    if (pipe2(pipe_fds, O_CLOEXEC) != 0) { return err_set_errno(err, "cannot start %s", name); }
    pid_t pid = fork();
    if (pid == 0) { become(argv, environment, log, parent, pipe_fds[1]); }
    close(pipe_fds[1]);
    ssize_t got = pid < 0 ? -1 : read(pipe_fds[0], &code, sizeof code); /* exec closes the pipe */
    close(pipe_fds[0]);
    if (pid > 0 && got == 0) {
        child->pid = pid;
        return STATUS_OK;
    }
    if (pid > 0) { waitpid(pid, NULL, 0); }
    errno = code != 0 ? code : errno;
    return err_set_errno(err, "cannot start %s", argv[0]);
}

static bool reap(struct child *child, int options)
{
    struct rusage usage;
    int status;
    if (child->pid == 0 || wait4(child->pid, &status, options, &usage) != child->pid) { return child->pid == 0; }
    child->pid = 0;
    child->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    child->cpu_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                   1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    child->peak_mb = (double)usage.ru_maxrss * 1024 / 1e6;
    return true;
}

bool child_running(struct child *child)
{
    return !reap(child, WNOHANG);
}

void child_stop(struct child *child, int signal, uint32_t timeout_ms)
{
    static const struct timespec pause = {0, 2 * NS_PER_MS};
    if (!child_running(child)) { return; }
    uint64_t ends_ms = clock_now_ms() + timeout_ms;
    kill(child->pid, signal);
    while (child_running(child) && clock_now_ms() < ends_ms) { nanosleep(&pause, NULL); }
    if (child->pid == 0) { return; }
    kill(child->pid, SIGKILL);
    reap(child, 0);
}

enum status child_read_log(const struct child *child, struct buffer *out, struct err *err)
{
    return file_read(child->log, 64 << 20, out, err);
}

enum status child_gone(const struct child *child, struct err *err)
{
    enum { TAIL = 300 };
    struct buffer log = {0};
    const char *tail = "";
    if (child_read_log(child, &log, err) == STATUS_OK && log.data) {
        tail = log.length > TAIL ? log.data + log.length - TAIL : log.data;
    }
    enum status status = err_set(err, STATUS_UNAVAILABLE, "%s has ended with %d; its log ends with: %s", child->name,
                                 child->exit_code, tail);
    buffer_free(&log);
    return status;
}

double process_memory_mb(pid_t pid, const char *line)
{
    char path[64], text[256];
    double kib = NAN;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(text, sizeof text, file)) {
        if (strncmp(text, line, strlen(line)) == 0 && text[strlen(line)] == ':' &&
            sscanf(text + strlen(line) + 1, "%lf", &kib) == 1) {
            break;
        }
    }
    if (file) { fclose(file); }
    return kib * 1024 / 1e6;
}

/* ---- Redis, a queue and daemons ---- */

enum { REDIS_START_MS = 10000, CLEAR_KEYS = 1000 };

static enum status make_folder(struct stage *stage, struct err *err)
{
    const char *base = getenv("TMPDIR");
    snprintf(stage->folder, sizeof stage->folder, "%.64s/sluice-bench-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(stage->folder)) {
        enum status status = err_set_errno(err, "cannot make a folder %s", stage->folder);
        stage->folder[0] = '\0';
        return status;
    }
    return STATUS_OK;
}

/* Waits until our own server answers; it refuses us while it loads. */
static enum status reach_own(struct stage *stage, struct err *err)
{
    static const struct timespec pause = {0, 5 * NS_PER_MS};
    for (uint64_t ends_ms = clock_now_ms() + REDIS_START_MS;;) {
        enum status status = client_open(&stage->address, STAGE_TIMEOUT_MS, &stage->client, err);
        if (status == STATUS_OK) { return STATUS_OK; }
        stage->client = NULL;
        if (!child_running(&stage->redis)) { return child_gone(&stage->redis, err); }
        if (clock_now_ms() > ends_ms) { return status; }
        nanosleep(&pause, NULL);
    }
}

static enum status start_own(struct stage *stage, bool appendonly, struct err *err)
{
    char log[CHILD_PATH];
    snprintf(stage->socket, sizeof stage->socket, "%.200s/redis.sock", stage->folder);
    snprintf(log, sizeof log, "%.200s/redis.log", stage->folder);
    const char *argv[] = {"redis-server",
                          "--port",
                          "0",
                          "--unixsocket",
                          stage->socket,
                          "--save",
                          "",
                          "--appendonly",
                          appendonly ? "yes" : "no",
                          "--appendfsync",
                          "everysec",
                          "--dir",
                          stage->folder,
                          NULL};
    stage->own = true;
    enum status status = child_start(&stage->redis, "redis-server", argv, NULL, log, err);
    if (status != STATUS_OK) { return err_prefix(err, "no Redis is named by --redis, and none can be started here"); }
    TRY(address_parse(stage->socket, &stage->address, err));
    return reach_own(stage, err);
}

enum status stage_open(struct stage *stage, const struct config *config, bool appendonly,
                       const volatile sig_atomic_t *stop, struct err *err)
{
    *stage = (struct stage){.config = config, .stop = stop};
    if (config_source_of(config, "queue") == SOURCE_FLAG) {
        return err_set(err, STATUS_BAD_INPUT, "--queue: a benchmark makes a queue of its own, and deletes it");
    }
    snprintf(stage->queue, sizeof stage->queue, "bench-%d-%llx", (int)getpid(), (unsigned long long)clock_now_ns());
    TRY(make_folder(stage, err));
    if (config_source_of(config, "redis") == SOURCE_DEFAULT) { return start_own(stage, appendonly, err); }
    TRY(config_address(config, &stage->address, err));
    return client_open(&stage->address, STAGE_TIMEOUT_MS, &stage->client, err);
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *at)
{
    (void)stat, (void)type, (void)at;
    return remove(path);
}

void stage_close(struct stage *stage)
{
    struct err err;
    if (stage->client && !stage->own && stage_clear(stage, "*", &err) != STATUS_OK) {
        fprintf(stderr, "the keys of queue %s are still there: %s\n", stage->queue, err.message);
    }
    if (stage->client) { client_close(stage->client); }
    child_stop(&stage->redis, SIGKILL, STAGE_TIMEOUT_MS);
    address_free(&stage->address);
    if (stage->folder[0] != '\0') { nftw(stage->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS); }
}

const char *stage_key(const struct stage *stage, const char *suffix, char key[STAGE_KEY])
{
    snprintf(key, STAGE_KEY, "sluice:{%s}:%s", stage->queue, suffix);
    return key;
}

/* Deletes the keys that one SCAN finds, and sets the cursor for the next. */
static enum status clear_some(struct stage *stage, const char *pattern, char cursor[32], struct err *err)
{
    const struct resp_value *found, *deleted;
    TRY(STAGE_ASK(stage, &found, err, "SCAN", cursor, "MATCH", pattern, "COUNT", "1000"));
    if (found->count != 2 || !found->items[0].bytes) {
        return err_set(err, STATUS_INTERNAL, "SCAN answered in an unknown shape");
    }
    snprintf(cursor, 32, "%s", found->items[0].bytes);
    const struct resp_value *keys = &found->items[1];
    if (keys->count == 0) { return STATUS_OK; }
    const char **words = malloc((keys->count + 1) * sizeof *words);
    if (!words) { return err_set(err, STATUS_NO_MEMORY, "no memory for %zu keys", keys->count); }
    words[0] = "UNLINK";
    for (size_t i = 0; i < keys->count; i++) { words[i + 1] = keys->items[i].bytes; }
    enum status status = client_send(stage->client, keys->count + 1, words, NULL, 0, err);
    free(words);
    return status == STATUS_OK ? client_receive(stage->client, &deleted, err) : status;
}

enum status stage_clear(struct stage *stage, const char *like, struct err *err)
{
    char pattern[STAGE_KEY], cursor[32] = "0";
    stage_key(stage, like, pattern);
    do {
        TRY(clear_some(stage, pattern, cursor, err));
    } while (strcmp(cursor, "0") != 0);
    return STATUS_OK;
}

enum status stage_check(const struct stage *stage, struct err *err)
{
    return *stage->stop == 0 ? STATUS_OK : err_set(err, STATUS_TIMEOUT, "interrupted");
}

/* A daemon gets our settings by its environment (so that no password is in its arguments), and `flags` override
 * them. */

enum { ENVIRONMENT_MAX = 512, ARGUMENTS_MAX = 40, SETTING_TEXT_MAX = 4200, STOP_MS = 60000 };

struct environment {
    char *items[ENVIRONMENT_MAX + 1];
    size_t count, inherited; /* the number of entries that are our own environment's */
};

static void free_environment(struct environment *environment)
{
    for (size_t i = environment->inherited; i < environment->count; i++) { free(environment->items[i]); }
}

/* The user's settings of Redis do not apply to our own. */
static bool about_redis(const char *key)
{
    return strncmp(key, "redis", 5) == 0 || strncmp(key, "tls_", 4) == 0 || strncmp(key, "sentinel_", 9) == 0;
}

static enum status add_setting(struct environment *environment, const struct setting *setting,
                               const struct config *config, struct err *err)
{
    char name[SETTING_NAME_MAX], value[SETTING_TEXT_MAX], *item;
    if (setting->type == SETTING_TEXT) { /* copied here, because setting_format hides passwords */
        const char *text;
        memcpy(&text, (const char *)config + setting->offset, sizeof text);
        snprintf(value, sizeof value, "%s", text ? text : "");
    } else {
        setting_format(setting, config, value, sizeof value);
    }
    setting_variable(setting, name);
    if (environment->count == ENVIRONMENT_MAX || asprintf(&item, "%s=%s", name, value) < 0) {
        return err_set(err, STATUS_NO_MEMORY, "no room for the settings of a daemon");
    }
    environment->items[environment->count++] = item;
    return STATUS_OK;
}

static enum status make_environment(const struct stage *stage, struct environment *environment, struct err *err)
{
    size_t count;
    const struct setting *table = config_settings(&count);
    for (char **item = environ; *item != NULL && environment->count < ENVIRONMENT_MAX; item++) {
        if (strncmp(*item, "SLUICE_", 7) != 0) { environment->items[environment->count++] = *item; }
    }
    environment->inherited = environment->count;
    for (size_t i = 0; i < count; i++) {
        if (stage->config->sources[i] != SOURCE_DEFAULT && table[i].type != SETTING_LIST &&
            (table[i].commands & FOR_SERVE) != 0 && !(stage->own && about_redis(table[i].key))) {
            TRY(add_setting(environment, &table[i], stage->config, err));
        }
    }
    environment->items[environment->count] = NULL;
    return STATUS_OK;
}

/* An empty configuration file replaces /etc/sluice/sluice.json, which our settings already contain. */
static enum status make_config(const struct stage *stage, char path[CHILD_PATH], struct err *err)
{
    snprintf(path, CHILD_PATH, "%.200s/sluice.json", stage->folder);
    FILE *file = fopen(path, "w");
    bool written = file && fputs("{}\n", file) >= 0;
    if (!file || fclose(file) != 0 || !written) { return err_set_errno(err, "cannot write %s", path); }
    return STATUS_OK;
}

enum status stage_daemon(struct stage *stage, const char *const *flags, struct child *out, struct err *err)
{
    char path[CHILD_PATH], log[CHILD_PATH], self[CHILD_PATH];
    const char *argv[ARGUMENTS_MAX] = {self,         "serve", "--config", path,          "--queue",
                                       stage->queue, "--log", "text",     "--log-level", "info"};
    size_t count = 10;
    *out = (struct child){0};
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0) { return err_set_errno(err, "cannot find this program"); }
    self[length] = '\0';
    TRY(make_config(stage, path, err));
    snprintf(log, sizeof log, "%.200s/daemon.log", stage->folder);
    if (unlink(log) != 0 && access(log, F_OK) == 0) { return err_set_errno(err, "cannot remove %s", log); }
    if (stage->own) {
        argv[count++] = "--redis";
        argv[count++] = stage->socket;
    }
    while (*flags && count < ARGUMENTS_MAX - 1) { argv[count++] = *flags++; }
    struct environment environment = {0};
    enum status status = make_environment(stage, &environment, err);
    if (status == STATUS_OK) { status = child_start(out, "sluice serve", argv, environment.items, log, err); }
    free_environment(&environment);
    return status;
}

/* The number after " key=" in a line. */
static double number_of(const char *line, const char *key)
{
    char name[64];
    snprintf(name, sizeof name, " %s=", key);
    const char *at = strstr(line, name);
    return at ? strtod(at + strlen(name), NULL) : 0;
}

enum status stage_end_daemon(struct child *daemon, struct daemon_counts *out, struct err *err)
{
    struct buffer log = {0};
    child_stop(daemon, SIGTERM, STOP_MS);
    if (daemon->exit_code != 0) { return child_gone(daemon, err); }
    enum status status = child_read_log(daemon, &log, err);
    const char *line = status == STATUS_OK && log.data ? strstr(log.data, " drained ") : NULL;
    if (status == STATUS_OK && !line) {
        status = err_set(err, STATUS_INTERNAL, "the log of a daemon has no counters");
    } else if (status == STATUS_OK) {
        *out = (struct daemon_counts){.done = number_of(line, "done"),
                                      .errors = number_of(line, "errors"),
                                      .batches = number_of(line, "batches"),
                                      .rows = number_of(line, "rows"),
                                      .rows_shared = number_of(line, "rows_shared"),
                                      .tokens = number_of(line, "tokens"),
                                      .computed_tokens = number_of(line, "computed_tokens"),
                                      .busy_ms = number_of(line, "busy_ms")};
    }
    buffer_free(&log);
    return status;
}
