/* Any bytes as a configuration file: an error that names the file, or settings within their ranges. */
#include <string.h>

#include "fuzz.h"
#include "serve/config.h"

/* What was accepted must read back: each value's text gives the same value again. */
static void check(const struct config *config)
{
    size_t count;
    const struct setting *table = config_settings(&count);
    struct config again;
    struct err err = {0};
    FUZZ_CHECK(config_init(&again, &err) == STATUS_OK);
    for (size_t i = 0; i < count; i++) {
        char first[8192], second[8192];
        setting_format(&table[i], config, first, sizeof first);
        bool hidden = table[i].secret || table[i].has_secret;
        bool unset = table[i].type == SETTING_TEXT && first[0] == '\0';
        if (hidden || unset)
            continue;
        FUZZ_CHECK(config_set(&again, &table[i], first, SOURCE_FLAG, "again", &err) == STATUS_OK);
        setting_format(&table[i], &again, second, sizeof second);
        FUZZ_CHECK(strcmp(first, second) == 0);
    }
    config_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config config;
    struct err err = {0};
    char *text = malloc(size + 1);
    FUZZ_CHECK(text != NULL && config_init(&config, &err) == STATUS_OK);
    memcpy(text, data, size);
    text[size] = '\0';
    enum status status = config_parse(&config, text, size, "fuzz.json", &err);
    if (status == STATUS_OK)
        check(&config);
    else
        FUZZ_CHECK(err.status == status && strstr(err.message, "fuzz.json") != NULL);
    config_free(&config);
    free(text);
    return 0;
}
