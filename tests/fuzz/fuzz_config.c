/* Any bytes as a configuration file: an error that names the file, or settings within their ranges. */
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "fuzz.h"

/* Accepted values must read back: each value's text gives the same value again. */
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
        if (hidden || unset || table[i].type == SETTING_LIST) { continue; }
        FUZZ_CHECK(config_set(&again, &table[i], first, SOURCE_FLAG, "again", &err) == STATUS_OK);
        setting_format(&table[i], &again, second, sizeof second);
        FUZZ_CHECK(strcmp(first, second) == 0);
    }
    config_free(&again);
}

/* Each queue of the list has settings of its own, or the list is refused. */
static void split(const struct config *config)
{
    struct config *configs;
    size_t queues;
    struct err err = {0};
    if (config_split(config, &configs, &queues, &err) != STATUS_OK) { return; }
    FUZZ_CHECK(queues == (config->queues.count == 0 ? 1 : config->queues.count));
    for (size_t i = 0; i < queues; i++) {
        FUZZ_CHECK(configs[i].queue != NULL && configs[i].weight >= 1);
        config_free(&configs[i]);
    }
    free(configs);
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
    if (status == STATUS_OK) {
        check(&config);
        split(&config);
    } else {
        FUZZ_CHECK(err.status == status && strstr(err.message, "fuzz.json") != NULL);
    }
    config_free(&config);
    free(text);
    return 0;
}
