#include "bench/stage.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "serve/config.h"

enum { REDIS_START_MS = 10000, CLEAR_KEYS = 1000 };

static enum status make_folder(struct stage *stage, struct err *err)
{
    const char *base = getenv("TMPDIR");
    snprintf(stage->folder, sizeof stage->folder, "%.64s/sluice-bench-XXXXXX", base != NULL ? base : "/tmp");
    if (mkdtemp(stage->folder) == NULL) {
        enum status status = err_set_errno(err, "cannot make a folder %s", stage->folder);
        stage->folder[0] = '\0';
        return status;
    }
    return STATUS_OK;
}

/* Waits until it answers: a server that still loads refuses us. */
static enum status reach_own(struct stage *stage, struct err *err)
{
    static const struct timespec pause = {0, 5 * NS_PER_MS};
    for (uint64_t ends_ms = clock_now_ms() + REDIS_START_MS;;) {
        enum status status = client_open(&stage->address, STAGE_TIMEOUT_MS, &stage->client, err);
        if (status == STATUS_OK)
            return STATUS_OK;
        stage->client = NULL;
        if (!child_running(&stage->redis))
            return child_gone(&stage->redis, err);
        if (clock_now_ms() > ends_ms)
            return status;
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
    if (status != STATUS_OK)
        return err_prefix(err, "no Redis is named by --redis, and none can be started here");
    TRY(address_parse(stage->socket, &stage->address, err));
    return reach_own(stage, err);
}

enum status stage_open(struct stage *stage, const struct config *config, bool appendonly,
                       const volatile sig_atomic_t *stop, struct err *err)
{
    *stage = (struct stage){.config = config, .stop = stop};
    if (config_source_of(config, "queue") == SOURCE_FLAG)
        return err_set(err, STATUS_BAD_INPUT, "--queue: a benchmark makes a queue of its own, and deletes it");
    snprintf(stage->queue, sizeof stage->queue, "bench-%d-%llx", (int)getpid(), (unsigned long long)clock_now_ns());
    TRY(make_folder(stage, err));
    if (config_source_of(config, "redis") == SOURCE_DEFAULT)
        return start_own(stage, appendonly, err);
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
    if (stage->client != NULL && !stage->own && stage_clear(stage, "*", &err) != STATUS_OK)
        fprintf(stderr, "the keys of queue %s are still there: %s\n", stage->queue, err.message);
    if (stage->client != NULL)
        client_close(stage->client);
    child_stop(&stage->redis, SIGKILL, STAGE_TIMEOUT_MS);
    address_free(&stage->address);
    if (stage->folder[0] != '\0')
        nftw(stage->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *stage_key(const struct stage *stage, const char *suffix, char key[STAGE_KEY])
{
    snprintf(key, STAGE_KEY, "sluice:{%s}:%s", stage->queue, suffix);
    return key;
}

/* Deletes what one SCAN has found, and sets the cursor of the next. */
static enum status clear_some(struct stage *stage, const char *pattern, char cursor[32], struct err *err)
{
    const struct resp_value *found, *deleted;
    TRY(STAGE_ASK(stage, &found, err, "SCAN", cursor, "MATCH", pattern, "COUNT", "1000"));
    if (found->count != 2 || found->items[0].bytes == NULL)
        return err_set(err, STATUS_INTERNAL, "SCAN answered in an unknown shape");
    snprintf(cursor, 32, "%s", found->items[0].bytes);
    const struct resp_value *keys = &found->items[1];
    if (keys->count == 0)
        return STATUS_OK;
    const char **words = malloc((keys->count + 1) * sizeof *words);
    if (words == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for %zu keys", keys->count);
    words[0] = "UNLINK";
    for (size_t i = 0; i < keys->count; i++)
        words[i + 1] = keys->items[i].bytes;
    enum status status = client_send(stage->client, keys->count + 1, words, NULL, 0, err);
    free(words);
    return status == STATUS_OK ? client_receive(stage->client, &deleted, err) : status;
}

enum status stage_clear(struct stage *stage, const char *like, struct err *err)
{
    char pattern[STAGE_KEY], cursor[32] = "0";
    stage_key(stage, like, pattern);
    do
        TRY(clear_some(stage, pattern, cursor, err));
    while (strcmp(cursor, "0") != 0);
    return STATUS_OK;
}

enum status stage_check(const struct stage *stage, struct err *err)
{
    return *stage->stop == 0 ? STATUS_OK : err_set(err, STATUS_TIMEOUT, "interrupted");
}
