#include "bench/filling.h"

#include <stdio.h>

enum { AT_ONCE = 10000, WORDS = 7, NUMBER = 24 };

static const char script[] =
    "for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'text', "
    "'the quick brown fox jumps over the lazy dog, number ' .. (ARGV[2] + i), 'encoding', ARGV[3]) end";

/* A command's words, and where those live that are made for it. */
struct words {
    const char *items[WORDS];
    char key[STAGE_KEY], count[NUMBER], from[NUMBER];
};

static void make(struct filling *filling, uint64_t count, struct words *words)
{
    snprintf(words->count, NUMBER, "%llu", (unsigned long long)count);
    snprintf(words->from, NUMBER, "%llu", (unsigned long long)filling->count);
    const char *all[WORDS] = {
        "EVAL",      script,           "1", stage_key(filling->stage, "requests", words->key), words->count,
        words->from, filling->encoding};
    for (size_t i = 0; i < WORDS; i++)
        words->items[i] = all[i];
    filling->count += count;
}

enum status filling_add(struct filling *filling, uint64_t count, struct err *err)
{
    struct words words;
    const struct resp_value *reply;
    while (count > 0) {
        uint64_t now = count < AT_ONCE ? count : AT_ONCE;
        TRY(stage_check(filling->stage, err));
        make(filling, now, &words);
        TRY(client_command(filling->stage->client, WORDS, words.items, NULL, &reply, err));
        count -= now;
    }
    return STATUS_OK;
}

void filling_write(struct filling *filling, uint64_t count, struct command *command)
{
    struct words words;
    make(filling, count, &words);
    command_list(command, WORDS, words.items, NULL);
}
