/* The configuration: one struct, one table of settings, four sources (flag > environment > file > default). */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "config/setting.h"
#include "model/model.h"
#include "redis/address.h"

/* The commands that take a setting. `sluice config` takes all of them. */
enum command_bit {
    FOR_SERVE = 1,
    FOR_SUBMIT = 2,
    FOR_GET = 4,
    FOR_EMBED = 8,
    FOR_TOKENIZE = 16,
    FOR_CONFIG = 32,
    FOR_OPERATOR = 64, /* dead, workers, pause, resume, cancel, stats, caps */
    FOR_DOCTOR = 128,
    FOR_QUEUES = 256,  /* an entry of `queues` may have its own */
    FOR_BULK = 512,    /* embed through a queue */
    FOR_ENGINE = 1024, /* the engine alone: bench engine, classify, rerank, model */
    FOR_GATEWAY = 2048,
    FOR_GENERATE = 4096,
};

/* The source of a value. A higher source wins, whatever the order of loading. */
enum config_source { SOURCE_DEFAULT, SOURCE_FILE, SOURCE_ENVIRONMENT, SOURCE_FLAG };

enum { CONFIG_SETTINGS_MAX = 64, CONFIG_QUEUES_MAX = 64, CONFIG_FILE_MAX_BYTES = 1 << 20 };

/* The entries of `queues` in the file: the text of each setting that an entry names. */
struct config_queues {
    struct config_queue {
        char *values[CONFIG_SETTINGS_MAX]; /* per row of the table; NULL: the common setting applies */
    } * items;                             /* [count] */
    size_t count;
};

/* A member for each row of settings.inc. Texts are NULL while unset; a choice is an index into its words, whose enum
 * has the same order; 0 is "auto" where a row allows it. */
struct config {
#define SETTING(type, name, ...) type name;
#include "config/settings.inc"
#undef SETTING
    unsigned char sources[CONFIG_SETTINGS_MAX]; /* enum config_source, per row of the table */
};

/* When a batch is cut: as soon as a compute thread is free, or by a timer. */
enum config_window { WINDOW_IDLE, WINDOW_FIXED };

/* The table. Thread: any. */
const struct setting *config_settings(size_t *count);

/* Fills `config` with the defaults. Owns: the caller ends it with config_free, also after an error.
 * Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status config_init(struct config *config, struct err *err);

/* Frees all texts. config_init must come before the next use. */
void config_free(struct config *config);

/* Sets one setting to `text`, unless a higher source has set it; the text is checked either way. An error message
 * begins with `where`. Errors: STATUS_BAD_INPUT, STATUS_NO_MEMORY. */
MUST_CHECK enum status config_set(struct config *config, const struct setting *setting, const char *text,
                                  enum config_source source, const char *where, struct err *err);

/* The source of this setting's value. */
enum config_source config_source_of(const struct config *config, const char *key);

/* Reads a file of JSON with // and block comments; unknown keys are refused, with the nearest known one named.
 * Errors: those of file_read; STATUS_BAD_INPUT naming file, line or field. Thread: one at a time (cJSON). */
MUST_CHECK enum status config_read(struct config *config, const char *path, struct err *err);

/* The same for bytes in memory, which are changed and must be followed by a NUL. `name` stands for the file's name.
 * Errors: STATUS_BAD_INPUT, STATUS_NO_MEMORY. */
MUST_CHECK enum status config_parse(struct config *config, char *bytes, size_t length, const char *name,
                                    struct err *err);

/* Reads SLUICE_<KEY> for every key; an empty variable counts as unset. Errors: STATUS_BAD_INPUT, STATUS_NO_MEMORY. */
MUST_CHECK enum status config_environment(struct config *config, struct err *err);

/* The setting that a variable NAME=VALUE of the environment seems to mean with a mistyped SLUICE_<KEY>; NULL: none. */
const struct setting *config_mistyped(const char *variable);

/* A setting of an entry of `queues`, as text; NULL when the entry does not name it. */
const char *config_queue_value(const struct config_queues *queues, size_t number, const char *key);

/* If the file lists `queues` and no flag or variable names one, `queue` becomes the first of them. Call it after all
 * sources. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status config_pick_queue(struct config *config, struct err *err);

/* Makes the settings of each queue to serve: the common ones, overridden by the queue's entry. There is one queue if
 * the file lists none, or if a flag or variable picks one. `*out` is [*count].
 * Owns: the caller ends each with config_free and the array with free. Errors: STATUS_BAD_INPUT, STATUS_NO_MEMORY;
 * nothing is left behind. */
MUST_CHECK enum status config_split(const struct config *config, struct config **out, size_t *count, struct err *err);

/* Reads the sources again: the file at `path` (NULL: none), below the flags and variables in `old`.
 * Owns: the caller ends `out` with config_free, also after an error. Errors: those of config_read and config_check. */
MUST_CHECK enum status config_reload(const struct config *old, const char *path, struct config *out, struct err *err);

/* Checks settings against each other; call it after all sources. Errors: STATUS_BAD_INPUT naming them. */
MUST_CHECK enum status config_check(const struct config *config, struct err *err);

/* Makes the address that `redis` names, with the configured password (redis_password, or the first line of
 * redis_password_file) in place of one in the URL; the same holds for the sentinels' password, and the TLS files are
 * added. A setting that is useless for this address is refused: somebody who sets tls_ca_file believes that the
 * connection is encrypted.
 * Owns: the caller ends `out` with address_free. Errors: those of address_parse, file_read and tls_open;
 * STATUS_BAD_INPUT (an empty password file, a useless setting), STATUS_NO_MEMORY; `out` is then empty. */
MUST_CHECK enum status config_address(const struct config *config, struct address *out, struct err *err);

/* Reads the token of the HTTP port: the first line of http_token_file; NULL: none is configured. Owns: the caller wipes
 * and frees `*out`. Errors: those of file_read, STATUS_BAD_INPUT (empty, too short), STATUS_NO_MEMORY. */
MUST_CHECK enum status config_http_token(const struct config *config, char **out, struct err *err);

/* Opens the configured model; an error says what to do when it is not there.
 * Owns: the caller ends it with model_close. Errors: those of model_open. */
MUST_CHECK enum status config_model(const struct config *config, struct model **out, struct err *err);

/* config_model, but a sequence-classification model opens with its head, too. */
MUST_CHECK enum status config_any_model(const struct config *config, struct model **out, struct err *err);

/* config_model, but it opens a language model, to generate text. */
MUST_CHECK enum status config_generator(const struct config *config, struct model **out, struct err *err);

/* config_any_model; but a directory that it refuses may be a language model's, which then generates. The error is that
 * of the first way to open it. */
MUST_CHECK enum status config_served_model(const struct config *config, struct model **out, struct err *err);

/* The number of compute threads of a CPU: as configured, else the CPUs that this process may use. */
unsigned config_threads(const struct config *config);

enum { DEVICES_MAX = 32 };

/* The devices that `device` names: by number, or all. */
struct device_list {
    bool all;
    unsigned count; /* 0 for all */
    uint32_t numbers[DEVICES_MAX];
};

/* Reads "all", a number, or numbers with commas between them; a number may occur twice. False for anything else, and
 * for more than DEVICES_MAX numbers. */
bool device_list_parse(const char *text, struct device_list *list);

#endif
