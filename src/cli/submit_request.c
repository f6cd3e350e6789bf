#include "cli/submit_request.h"

#include <stdio.h>
#include <string.h>

#include "cli/span.h"

enum { WORDS_MAX = 40 };

static const char *const encodings[] = {"default", "json", "f32", "f16", "base64", NULL};

_Static_assert(sizeof encodings / sizeof encodings[0] == ENCODING_COUNT + 2, "a word for each encoding");

static bool is_id(const char *text)
{
    return request_id_usable(text, strlen(text));
}

#define OWN(name) .key = #name, .offset = offsetof(struct submit_options, name)
/* clang-format off */
const struct setting submit_settings[] = {
    {OWN(input), .type = SETTING_TEXT, .value = "FILE", .help = "texts, one per line; - is standard input"},
    {OWN(wait), .type = SETTING_SWITCH, .fallback = "false", .help = "wait, and print replies instead of ids"},
    {OWN(timeout_s), .type = SETTING_INTEGER, .fallback = "60", .least = 1, .most = 86400, .value = "N",
        .help = "longest wait for each reply"},
    {OWN(id), .type = SETTING_TEXT, .value = "ID", .help = "the request's id (only with one text)",
        .accepts = is_id, .expects = "1 to 128 printable ASCII characters, and not what Redis calls an entry"},
    {OWN(encoding), .type = SETTING_CHOICE, .fallback = "default", .choices = encodings, .help = "of the reply in Redis"},
    {OWN(ttl), .type = SETTING_INTEGER, .fallback = "0", .least = 0, .most = 604800, .value = "SECONDS",
        .help = "how long the reply is kept; 0: as the daemon says"},
    {OWN(class), .type = SETTING_CHOICE, .fallback = "normal", .choices = class_names, .help = "priority"},
    {OWN(inputs), .type = SETTING_SWITCH, .fallback = "false", .help = "all texts are one request: all of them or none"},
    {OWN(delay), .type = SETTING_TEXT, .value = "SPAN", .help = "not before so long from now: 500ms, 90s, 2h, 7d",
        .accepts = span_is, .expects = SPAN_EXPECTS},
    {OWN(expires_in), .type = SETTING_TEXT, .value = "SPAN", .help = "answered `expired` when it has not started by then",
        .accepts = span_is, .expects = SPAN_EXPECTS},
    {OWN(max_attempts), .type = SETTING_INTEGER, .fallback = "0", .least = 0, .most = 10, .value = "N",
        .help = "tries before it becomes a dead letter; 0: as the daemon says"},
    {OWN(tenant), .type = SETTING_TEXT, .value = "NAME", .help = "whose it is: tenants of a class take turns"},
    {OWN(meta), .type = SETTING_TEXT, .value = "TEXT", .most = 4096, .help = "comes back with the reply"},
    {OWN(results), .type = SETTING_TEXT, .value = "NAME", .help = "add an entry to the queue's stream results:NAME when it is finished; not with --wait"},
    {OWN(track), .type = SETTING_SWITCH, .fallback = "false", .help = "let the reply say `queued` until it is there"},
};
/* clang-format on */

_Static_assert(sizeof submit_settings / sizeof submit_settings[0] == SUBMIT_SETTINGS, "the header says how many");

/* A command under construction: pointers into the caller's strings. */
struct words {
    const char *bytes[WORDS_MAX];
    size_t lengths[WORDS_MAX];
    size_t count;
};

static void word(struct words *words, const char *bytes, size_t length)
{
    words->bytes[words->count] = bytes;
    words->lengths[words->count++] = length;
}

static void field(struct words *words, const char *name, const char *value)
{
    word(words, name, strlen(name));
    word(words, value, strlen(value));
}

/* Room for the options that become numbers. */
struct numbers {
    char ttl[24], delay[24], expires_in[24], max_attempts[24], notify[80];
};

static void span_field(struct words *words, const char *name, const char *span, char number[24])
{
    uint64_t ms;
    if (span == NULL || !span_parse(span, &ms))
        return;
    snprintf(number, 24, "%llu", (unsigned long long)ms);
    field(words, name, number);
}

static void option_fields(const struct submit_options *options, struct words *words, struct numbers *numbers)
{
    snprintf(numbers->ttl, sizeof numbers->ttl, "%lld", (long long)options->ttl);
    snprintf(numbers->max_attempts, sizeof numbers->max_attempts, "%lld", (long long)options->max_attempts);
    snprintf(numbers->notify, sizeof numbers->notify, "stream:%s", options->results == NULL ? "" : options->results);
    if (options->id != NULL)
        field(words, "id", options->id);
    if (options->encoding != 0)
        field(words, "encoding", encodings[options->encoding]);
    if (options->ttl > 0)
        field(words, "ttl", numbers->ttl);
    if (options->max_attempts > 0)
        field(words, "max_attempts", numbers->max_attempts);
    span_field(words, "delay", options->delay, numbers->delay);
    span_field(words, "expires_in", options->expires_in, numbers->expires_in);
    if (options->tenant != NULL)
        field(words, "tenant", options->tenant);
    if (options->meta != NULL)
        field(words, "meta", options->meta);
    if (options->track)
        field(words, "track", "1");
    if (options->wait || options->results != NULL)
        field(words, "notify", options->wait ? "1" : numbers->notify);
}

enum status submit_send(const struct submit_options *options, const char *queue, struct client *client,
                        const char *name, const char *value, size_t length, struct err *err)
{
    char stream[128];
    struct words words = {.count = 0};
    struct numbers numbers;
    snprintf(stream, sizeof stream, "sluice:{%s}:%s", queue, class_streams[options->class]);
    field(&words, "XADD", stream);
    word(&words, "*", 1);
    word(&words, name, strlen(name));
    word(&words, value, length);
    option_fields(options, &words, &numbers);
    return client_send(client, words.count, words.bytes, words.lengths, 0, err);
}

void submit_name(const struct submit_options *options, const char *entry, char name[REQUEST_NAME_MAX])
{
    snprintf(name, REQUEST_NAME_MAX, "%s%s", class_prefixes[options->class], entry);
}

void submit_add_input(struct buffer *inputs, const char *text, size_t length)
{
    buffer_format(inputs, "%s\"", inputs->length == 0 ? "[" : ",");
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            buffer_format(inputs, "\\%c", c);
        else if (c < 0x20)
            buffer_format(inputs, "\\u%04x", c);
        else
            buffer_append(inputs, &text[i], 1);
    }
    buffer_append(inputs, "\"", 1);
}
