/* Enqueues texts with XADD, pipelined; with --wait also prints their replies, in the order of the texts. */
#include <string.h>
#include <sysexits.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/lines.h"
#include "cli/reply_print.h"
#include "io/client.h"
#include "serve/password.h"
#include "work/request.h"

enum { TIMEOUT_MS = 5000, PIPELINE = 256, ENTRY_MAX = 64, KEY_MAX = 256, FIELDS_MAX = 16 };

struct own {
    char *input, *id;
    int encoding; /* enum own_encoding */
    int64_t ttl, timeout_s;
    bool wait;
};

enum own_encoding { OWN_DEFAULT, OWN_JSON, OWN_F32 };

static const char *const encodings[] = {"default", "json", "f32", NULL};

static bool is_id(const char *text)
{
    return request_id_usable(text, strlen(text));
}

#define OWN(name) .key = #name, .offset = offsetof(struct own, name)
/* clang-format off */
static const struct setting own_settings[] = {
    {OWN(input), .type = SETTING_TEXT, .value = "FILE", .help = "texts, one per line; - is standard input"},
    {OWN(wait), .type = SETTING_SWITCH, .fallback = "false", .help = "wait, and print replies instead of ids"},
    {OWN(timeout_s), .type = SETTING_INTEGER, .fallback = "60", .least = 1, .most = 86400, .value = "N",
        .help = "longest wait for each reply"},
    {OWN(id), .type = SETTING_TEXT, .value = "ID", .help = "the request's id (only with one text)",
        .accepts = is_id, .expects = "1 to 128 of A-Z a-z 0-9 . _ : - in another shape than an entry id"},
    {OWN(encoding), .type = SETTING_CHOICE, .fallback = "default", .choices = encodings, .help = "of the reply in Redis"},
    {OWN(ttl), .type = SETTING_INTEGER, .fallback = "0", .least = 0, .most = 604800, .value = "SECONDS",
        .help = "how long the reply is kept; 0: as the daemon says"},
};
/* clang-format on */

struct submission {
    const struct own *own;
    const char *queue;
    struct client *client;
    char entries[PIPELINE][ENTRY_MAX];
    unsigned sent, failed;
};

/* A command under construction: pointers into the caller's strings. */
struct words {
    const char *bytes[FIELDS_MAX];
    size_t lengths[FIELDS_MAX];
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

static enum status send_text(struct submission *submission, const char *text, size_t length, struct err *err)
{
    const struct own *own = submission->own;
    char stream[128], ttl[24];
    snprintf(stream, sizeof stream, "sluice:{%s}:requests", submission->queue);
    snprintf(ttl, sizeof ttl, "%lld", (long long)own->ttl);
    struct words words = {.count = 0};
    field(&words, "XADD", stream);
    word(&words, "*", 1);
    word(&words, "text", 4);
    word(&words, text, length);
    if (own->id != NULL)
        field(&words, "id", own->id);
    if (own->encoding != OWN_DEFAULT)
        field(&words, "encoding", encodings[own->encoding]);
    if (own->ttl > 0)
        field(&words, "ttl", ttl);
    if (own->wait)
        field(&words, "notify", "1");
    return client_send(submission->client, words.count, words.bytes, words.lengths, 0, err);
}

/* What names the reply: the producer's id, else the id of the entry. */
static const char *reply_id(const struct submission *submission, const char *entry)
{
    return submission->own->id != NULL ? submission->own->id : entry;
}

static enum status receive_id(struct submission *submission, char *entry, struct err *err)
{
    const struct resp_value *answer;
    enum status status = client_receive(submission->client, &answer, err);
    if (status != STATUS_OK)
        return status;
    if (answer->bytes == NULL)
        return err_set(err, STATUS_INTERNAL, "XADD answered something else than an id");
    snprintf(entry, ENTRY_MAX, "%s", answer->bytes);
    if (!submission->own->wait)
        puts(reply_id(submission, entry));
    return STATUS_OK;
}

/* Waits for the wake token of a request, which is the id of its entry: others at that key are of earlier requests with
 * the same id. */
static enum status wait_token(struct submission *submission, const char *entry, bool *came, struct err *err)
{
    char wake[KEY_MAX], seconds[24];
    snprintf(wake, sizeof wake, "sluice:{%s}:wake:%s", submission->queue, reply_id(submission, entry));
    uint64_t now_ms = clock_now_ms(), ends_ms = now_ms + (uint64_t)submission->own->timeout_s * 1000;
    *came = false;
    for (; !*came && now_ms < ends_ms; now_ms = clock_now_ms()) {
        snprintf(seconds, sizeof seconds, "%.3f", (double)(ends_ms - now_ms) / 1000);
        const char *const wait[] = {"BLPOP", wake, seconds};
        const struct resp_value *answer;
        enum status status = client_send(submission->client, 3, wait, NULL, (uint32_t)(ends_ms - now_ms), err);
        if (status == STATUS_OK)
            status = client_receive(submission->client, &answer, err);
        if (status != STATUS_OK)
            return status;
        *came = answer->type == RESP_ARRAY && answer->count == 2 && resp_equals(&answer->items[1], entry);
    }
    return STATUS_OK;
}

/* Waits for a request, then prints its reply; without a token only one that is surely its own. */
static enum status wait_reply(struct submission *submission, const char *entry, struct err *err)
{
    bool told;
    enum status status = wait_token(submission, entry, &told, err);
    if (status != STATUS_OK)
        return status;
    const char *id = reply_id(submission, entry);
    char key[KEY_MAX];
    snprintf(key, sizeof key, "sluice:{%s}:reply:%s", submission->queue, id);
    const struct resp_value *reply;
    status = client_command(submission->client, 2, (const char *const[]){"HGETALL", key}, NULL, &reply, err);
    if (status != STATUS_OK)
        return status;
    const struct resp_value *of = reply_field(reply, "entry");
    if (!reply_is_final(reply) || (!told && (of == NULL || !resp_equals(of, entry))))
        return err_set(err, STATUS_TIMEOUT,
                       "no reply for %s within %lld s; is a daemon running on queue %s? (sluice get %s asks again)", id,
                       (long long)submission->own->timeout_s, submission->queue, id);
    submission->failed += !resp_equals(reply_field(reply, "status"), "done");
    return reply_print(stdout, id, reply, err);
}

/* Takes the ids of everything that was sent, and with --wait the replies. */
static enum status flush(struct submission *submission, struct err *err)
{
    enum status status = STATUS_OK;
    for (unsigned i = 0; i < submission->sent && status == STATUS_OK; i++)
        status = receive_id(submission, submission->entries[i], err);
    for (unsigned i = 0; submission->own->wait && i < submission->sent && status == STATUS_OK; i++)
        status = wait_reply(submission, submission->entries[i], err);
    submission->sent = 0;
    return status;
}

static enum status submit_text(struct submission *submission, const char *text, size_t length, struct err *err)
{
    enum status status = send_text(submission, text, length, err);
    if (status == STATUS_OK && ++submission->sent == PIPELINE)
        status = flush(submission, err);
    return status;
}

static enum status submit_lines(struct submission *submission, const char *path, struct err *err)
{
    struct lines lines;
    struct line line;
    enum status status = lines_open(&lines, path, err);
    if (status != STATUS_OK)
        return status;
    while ((status = lines_next(&lines, &line, err)) == STATUS_OK && line.text != NULL) {
        if (submission->own->id != NULL && lines.number > 1) {
            status = err_set(err, STATUS_BAD_INPUT, "--id names one request, but %s has more lines", lines.name);
            break;
        }
        status = submit_text(submission, line.text, line.length, err);
        if (status != STATUS_OK)
            break;
    }
    lines_close(&lines);
    return status;
}

static enum status submit(struct submission *submission, const struct invocation *invocation, struct err *err)
{
    enum status status = STATUS_OK;
    if (invocation->operand_count == 0)
        status = submit_lines(submission, submission->own->input == NULL ? "-" : submission->own->input, err);
    for (size_t i = 0; i < invocation->operand_count && status == STATUS_OK; i++) {
        const char *text = invocation->operands[i];
        if (!utf8_valid(text, strlen(text)))
            status = err_set(err, STATUS_BAD_INPUT, "text %zu is not UTF-8", i + 1);
        else
            status = submit_text(submission, text, strlen(text), err);
    }
    struct err first = *err;
    enum status rest = flush(submission, err); /* what was sent before a bad line has an id, too */
    if (status != STATUS_OK)
        *err = first;
    return status != STATUS_OK ? status : rest;
}

static int check_usage(const struct invocation *invocation)
{
    const struct own *own = invocation->own;
    const char *problem = NULL;
    if (own->input != NULL && invocation->operand_count > 0)
        problem = "texts and --input were both given; which one?";
    else if (own->id != NULL && invocation->operand_count > 1)
        problem = "--id names one request, but there are several texts";
    if (problem != NULL)
        fprintf(stderr, "sluice submit: %s\n", problem);
    return problem == NULL ? EX_OK : EX_USAGE;
}

static int run(struct invocation *invocation)
{
    struct err err = {0};
    struct address address;
    if (check_usage(invocation) != EX_OK)
        return EX_USAGE;
    enum status status = password_address(&invocation->config, &address, &err);
    if (status != STATUS_OK)
        return report(invocation, &err);
    struct submission submission = {.own = invocation->own, .queue = invocation->config.queue};
    status = client_open(&address, TIMEOUT_MS, &submission.client, &err);
    if (status == STATUS_OK) {
        status = submit(&submission, invocation, &err);
        client_close(submission.client);
    }
    address_free(&address);
    if (status != STATUS_OK)
        return report(invocation, &err);
    return submission.failed == 0 ? EX_OK : EX_DATAERR;
}

const struct subcommand command_submit = {
    .name = "submit",
    .bit = FOR_SUBMIT,
    .operands = "[TEXT...]",
    .summary = "Enqueue texts and print their ids, or with --wait their replies",
    .explanation = "Each TEXT is a request; without one, each line of --input or of standard input is.\n"
                   "With --wait each reply is a line of JSON; exit 65 when one of them is an error.",
    .own = own_settings,
    .own_count = sizeof own_settings / sizeof own_settings[0],
    .own_size = sizeof(struct own),
    .run = run,
};
