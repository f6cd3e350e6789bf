/* Configurations out of a text, as if it stood in a file. */
#ifndef TESTS_CONFIG_TEXT_H
#define TESTS_CONFIG_TEXT_H

#include "harness.h"

#include <stdlib.h>

#include "serve/config.h"

/* Parses `text` as a file into `config`, which has its defaults before. */
static inline enum status parse(struct config *config, const char *text, struct err *err)
{
    assert_int_equal(config_init(config, err), STATUS_OK);
    char *copy = strdup(text);
    enum status status = config_parse(config, copy, strlen(text), "test.json", err);
    free(copy);
    return status;
}

static inline void expect_refused(const char *text, const char *message_part)
{
    struct config config;
    struct err err = {0};
    assert_int_equal(parse(&config, text, &err), STATUS_BAD_INPUT);
    if (strstr(err.message, message_part) == NULL)
        fail_msg("\"%s\" does not contain \"%s\"", err.message, message_part);
    config_free(&config);
}

static inline const struct setting *row(const char *key)
{
    size_t count;
    const struct setting *table = config_settings(&count);
    const struct setting *found = setting_find(table, count, key);
    assert_non_null(found);
    return found;
}

#endif
