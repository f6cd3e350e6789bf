/* One setting: a key with a type, a range and a line of help, and how its text becomes a typed field.
 *
 * A row is the only place that describes a setting. The configuration file uses `key`, the environment SLUICE_KEY, the
 * command line --key with dashes. Parsing, range checks, --help and `sluice config` all read the same row. A command's
 * own options, which are in no file, are rows of the same kind in the command's own table. */
#ifndef CONFIG_SETTING_H
#define CONFIG_SETTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* The type of the field in the target struct. */
enum setting_type {
    SETTING_TEXT,    /* char *, owned by the target, NULL while unset */
    SETTING_INTEGER, /* int64_t */
    SETTING_SWITCH,  /* bool; on the command line also without a value, and --no-key */
    SETTING_CHOICE,  /* int, an index into `choices` */
    SETTING_LIST,    /* in the file only, as an array of objects; the table's owner reads, frees and copies it */
};

/* A row. */
struct setting {
    const char *key; /* lower_snake_case, with its unit as suffix */
    enum setting_type type;
    size_t offset;                     /* of the field in its target struct */
    const char *fallback;              /* the default, as text; NULL leaves a text unset */
    int64_t least, most;               /* INTEGER; for TEXT: `most` is the longest length in bytes */
    const char *const *choices;        /* CHOICE: NULL-terminated */
    bool (*accepts)(const char *text); /* TEXT: a further check; `expects` says what it accepts */
    const char *expects;
    bool automatic;                                             /* INTEGER: also "auto", which is 0 in the field */
    bool numbers;                                               /* TEXT: [1, 2] in a file means "1,2", and 1 "1" */
    const char *value;                                          /* what --help calls the value: FILE, URL, N */
    const char *help;                                           /* one line */
    unsigned commands;                                          /* the commands that take it: enum command_bit */
    bool secret;                                                /* no flag; `sluice config` and logs never show it */
    bool has_secret;                                            /* a URL that may carry a password */
    bool live;                                                  /* a reload may change it while the daemon runs */
    void (*format)(const void *field, char *text, size_t size); /* LIST: writes it on one line */
};

enum { SETTING_NAME_MAX = 64 };

/* Writes the flag of a setting: "--window-ms" for the key "window_ms". */
void setting_flag(const struct setting *setting, char name[SETTING_NAME_MAX]);

/* Writes the environment variable: "SLUICE_WINDOW_MS". */
void setting_variable(const struct setting *setting, char name[SETTING_NAME_MAX]);

/* Checks the text and stores it in the setting's field of `target`; on an error the field keeps its value. `where` says
 * where the text came from ("--window-ms"); messages begin with it. The text of a secret is not quoted. Errors:
 * STATUS_BAD_INPUT, STATUS_NO_MEMORY. */
MUST_CHECK enum status setting_parse(const struct setting *setting, const char *text, const char *where, void *target,
                                     struct err *err);

/* Writes the field as text (cut at `size`), as setting_parse would read it; secrets as "***". */
void setting_format(const struct setting *setting, const void *target, char *text, size_t size);

/* Writes the values that the setting takes, e.g. "a whole number from 0 to 60000". */
void setting_describe(const struct setting *setting, char *text, size_t size);

/* Sets every field of the table to its default. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status settings_reset(const struct setting *table, size_t count, void *target, struct err *err);

/* Copies one field, of any type but LIST, from one struct to another. Errors: STATUS_NO_MEMORY; `to` keeps its value.
 */
MUST_CHECK enum status setting_copy(const struct setting *setting, const void *from, void *to, struct err *err);

/* True if the field, of any type but LIST, has the same value in both. */
bool setting_equal(const struct setting *setting, const void *a, const void *b);

/* Frees the texts of the table's fields. */
void settings_free(const struct setting *table, size_t count, void *target);

/* The row with this key, or NULL. */
const struct setting *setting_find(const struct setting *table, size_t count, const char *key);

/* The row with the nearest key by edit distance; never NULL. */
const struct setting *setting_nearest(const struct setting *table, size_t count, const char *key);

/* Writes a Redis address with the password of a redis:// URL replaced by ***. */
void url_redact(const char *url, char *text, size_t size);

/* Finds the password inside a URL: [*begin, *end) is empty when there is none. */
void url_password(const char *url, size_t *begin, size_t *end);

#endif
