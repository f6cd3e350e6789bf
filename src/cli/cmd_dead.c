/* Dead letters: requests that used up their attempts or crashed workers. Lists them, submits them again, removes
 * them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/duration.h"
#include "cli/invocation.h"
#include "cli/print.h"
#include "operator/answers.h"
#include "schedule/request.h"

struct own {
    char *code, *id, *older_than, *newer_than;
    bool all, dry_run, json;
};

#define OWN(name) .key = #name, .offset = offsetof(struct own, name)
/* clang-format off */
static const struct setting own_settings[] = {
    {OWN(code), .type = SETTING_TEXT, .value = "CODE", .help = "only letters of this code: poison, internal, timeout, ..."},
    {OWN(id), .type = SETTING_TEXT, .value = "ID", .help = "only the letters of the request with this id or name"},
    {OWN(older_than), .type = SETTING_TEXT, .value = "SPAN", .help = "only what was buried at least so long ago: 90s, 2h, 7d",
        .accepts = duration_is, .expects = DURATION_EXPECTS},
    {OWN(newer_than), .type = SETTING_TEXT, .value = "SPAN", .help = "only what was buried at most so long ago",
        .accepts = duration_is, .expects = DURATION_EXPECTS},
    {OWN(all), .type = SETTING_SWITCH, .fallback = "false", .help = "all letters that the filters let through: needed without LETTER"},
    {OWN(dry_run), .type = SETTING_SWITCH, .fallback = "false", .help = "only list what would be done"},
    {OWN(json), .type = SETTING_SWITCH, .fallback = "false", .help = "list: a line of JSON for each letter"},
};
/* clang-format on */

/* One run of a verb, and its counts. */
struct work {
    struct session *session;
    bool dry_run, json;
    char digest[SCRIPT_DIGEST + 1]; /* of lua/requeue */
    uint64_t done, bodiless;
};

static void print_field(const struct letter *letter, const char *name, size_t width)
{
    const struct resp_value *value = resp_field(letter->fields, name);
    size_t length = value && value->bytes ? value->length : 0;
    if (length > 0) { print_bytes(stdout, value->bytes, length); }
    for (; length < width; length++) { putchar(' '); }
}

static enum status list_letter(void *context, const struct letter *letter, struct err *err)
{
    struct work *work = context;
    char age[DURATION_TEXT];
    work->done++;
    if (work->json) {
        struct buffer line = {0};
        answer_put_letter(&line, work->session, letter);
        return print_json(&line, err);
    }
    printf("%-20s ", letter->id);
    print_field(letter, "_code", 14);
    putchar(' ');
    print_field(letter, "_entry", 24);
    putchar(' ');
    print_field(letter, "id", 16);
    putchar(' ');
    printf("%" PRIu64 " attempts, %s ago: ", letter_attempts(letter), duration_format(letter->age_ms, age));
    print_field(letter, "_message", 0);
    putchar('\n');
    return STATUS_OK;
}

static enum status show_letter(void *context, const struct letter *letter, struct err *err)
{
    (void)err;
    struct work *work = context;
    printf("letter: %s\n", letter->id);
    for (size_t i = 0; i + 1 < letter->fields->count; i += 2) {
        const struct resp_value *name = &letter->fields->items[i], *value = name + 1;
        print_bytes(stdout, session_text(name), name->length);
        fputs(": ", stdout);
        print_bytes(stdout, session_text(value), value->length);
        putchar('\n');
    }
    work->done++;
    return STATUS_OK;
}

static enum status delete_letter(void *context, const struct letter *letter, struct err *err)
{
    struct work *work = context;
    bool removed;
    if (work->dry_run) { return list_letter(context, letter, err); }
    TRY(letter_delete(work->session, letter->id, &removed, err));
    work->done += removed;
    return STATUS_OK;
}

static enum status requeue_letter(void *context, const struct letter *letter, struct err *err)
{
    struct work *work = context;
    enum requeued requeued;
    char entry[ENTRY_ID_TEXT];
    if (work->dry_run) { return list_letter(context, letter, err); }
    TRY(letter_requeue(work->session, letter->id, work->digest, &requeued, entry, err));
    work->done += requeued == REQUEUED;
    work->bodiless += requeued == REQUEUED_EMPTY || requeued == REQUEUED_CUT;
    if (requeued == REQUEUED) {
        printf("%s requeued as %s\n", letter->id, entry);
    } else if (requeued == REQUEUED_EMPTY) {
        fprintf(stderr, "sluice dead: %s holds no fields to submit again; it stays\n", letter->id);
    } else if (requeued == REQUEUED_CUT) {
        fprintf(stderr,
                "sluice dead: %s holds only the beginning of its request (_cut), which was too long to be kept whole; "
                "it stays\n",
                letter->id);
    }
    return STATUS_OK;
}

struct verb {
    const char *name;
    letter_visit_fn *visit;
    const char *did, *would; /* for the count at the end; NULL: none */
    bool takes_letters, changes;
};

static const struct verb verbs[] = {
    {"list", list_letter, NULL, NULL, false, false},
    {"show", show_letter, NULL, NULL, true, false},
    {"requeue", requeue_letter, "requeued", "would be requeued", true, true},
    {"delete", delete_letter, "deleted", "would be deleted", true, true},
    {"purge", delete_letter, "deleted", "would be deleted", false, true},
};

static const struct verb *find_verb(const struct invocation *invocation)
{
    const char *name = invocation->operand_count == 0 ? "list" : invocation->operands[0];
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        if (strcmp(verbs[i].name, name) == 0) { return &verbs[i]; }
    }
    return NULL;
}

static bool has_filter(const struct own *own)
{
    return own->code || own->id || own->older_than || own->newer_than;
}

/* Why these arguments make no sense; NULL if they do. */
static const char *find_problem(const struct invocation *invocation, const struct verb *verb)
{
    const struct own *own = invocation->own;
    size_t letters = invocation->operand_count > 1 ? invocation->operand_count - 1 : 0;
    if (!verb) { return "the first word must be list, show, requeue, delete or purge"; }
    if (own->json && strcmp(verb->name, "list") != 0) { return "--json is for list"; }
    if (letters > 0 && !verb->takes_letters) { return "list and purge take no letters, only filters"; }
    if (letters > 0 && (has_filter(own) || own->all)) { return "name letters, or use filters and --all, not both"; }
    if (strcmp(verb->name, "show") == 0 && letters == 0 && !has_filter(own) && !own->all) {
        return "show needs a letter (the first column of sluice dead list), a filter, or --all";
    }
    if (verb->changes && letters == 0 && !own->all && !own->dry_run) {
        return "this may change many letters: name them, or say --all (all that the filters let through); --dry-run "
               "lists them";
    }
    return NULL;
}

static enum status handle_letters(struct session *session, const struct invocation *invocation, struct err *err)
{
    const struct own *own = invocation->own;
    const struct verb *verb = find_verb(invocation);
    struct work work = {.session = session, .dry_run = own->dry_run, .json = own->json};
    enum status status = STATUS_OK;
    if (!own->json) { print_heading(session); }
    if (invocation->operand_count > 1) {
        for (size_t i = 1; i < invocation->operand_count && status == STATUS_OK; i++) {
            const char *letter = invocation->operands[i];
            status = letters_one(session, letter, &work, verb->visit, err);
            if (status == STATUS_NOT_FOUND) {
                size_t length = strlen(err->message);
                snprintf(err->message + length, sizeof err->message - length,
                         "; if it is a request's id or name: sluice dead list --id %.100s", letter);
            }
        }
    } else {
        struct letter_filter filter = {.code = own->code, .id = own->id};
        if (own->older_than) { (void)duration_parse(own->older_than, &filter.older_than_ms); }
        if (own->newer_than) { (void)duration_parse(own->newer_than, &filter.newer_than_ms); }
        status = letters_each(session, &filter, &work, verb->visit, err);
    }
    if (verb->did) { printf("%" PRIu64 " %s\n", work.done, own->dry_run ? verb->would : verb->did); }
    if (!verb->did && status == STATUS_OK && work.done == 0) { /* standard output has letters only */
        fprintf(stderr, "no dead letter in queue %s%s\n", session->queue, has_filter(own) ? " matches" : "");
    }
    if (status == STATUS_OK && work.bodiless > 0) {
        return err_set(err, STATUS_BAD_INPUT, "%" PRIu64 " letters could not be requeued", work.bodiless);
    }
    return status;
}

static int run_dead(struct invocation *invocation)
{
    const char *problem = find_problem(invocation, find_verb(invocation));
    if (problem) {
        fprintf(stderr, "sluice dead: %s\n", problem);
        return EX_USAGE;
    }
    return invocation->operand_count > 1 ? invocation_run_one(invocation, handle_letters)
                                         : invocation_run(invocation, handle_letters);
}

const struct subcommand command_dead = {
    .name = "dead",
    .bit = FOR_OPERATOR,
    .operands = "list|show|requeue|delete|purge [LETTER...]",
    .summary = "Look at dead letters, submit them again, remove them",
    .explanation =
        "list     a line for each: letter, code, name of the request, its id if it has one, attempts, age, message\n"
        "show     all fields: the request's own, and what the daemon says of it, with _ before the name\n"
        "requeue  submit again, as a new request with the same id; the letter is gone then\n"
        "delete   remove; purge is the same for many\n\n"
        "LETTER is the first column of list. Without one, --all means all that the filters let through.",
    OWN_OPTIONS(own_settings, struct own),
    .run = run_dead,
};
