/* Dead letters: requests that used up their attempts or crashed workers. Lists them, submits them again, removes
 * them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "cli/print.h"
#include "cli/session.h"
#include "schedule/request.h"

/* Which letters are meant; NULL and 0 mean any. */
struct letter_filter {
    const char *code;       /* as in the reply: poison, internal, … */
    const char *id;         /* of the request: its id, or its name */
    uint64_t older_than_ms; /* dead for at least … */
    uint64_t newer_than_ms; /* … or at most this long */
};

/* A dead letter; valid while `visit` runs. */
struct letter {
    const char *id;                  /* of the dead letter; its time is when the request died */
    const struct resp_value *fields; /* names and values in turn, see resp_field */
    uint64_t age_ms;
};

enum { PAGE = 100 };

static bool field_is(const struct letter *letter, const char *name, const char *wanted)
{
    const struct resp_value *value = resp_field(letter->fields, name);
    return value && resp_equals(value, wanted);
}

static bool passes(const struct letter *letter, const struct letter_filter *filter)
{
    if (filter->code && !field_is(letter, "_code", filter->code)) { return false; }
    return !filter->id || field_is(letter, "id", filter->id) || field_is(letter, "_id", filter->id) ||
           field_is(letter, "_entry", filter->id);
}

/* Reads an entry of XRANGE; false when it has another shape. */
static bool read_letter(const struct session *session, const struct resp_value *entry, struct letter *out)
{
    if (entry->type != RESP_ARRAY || entry->count != 2 || !entry->items[0].bytes ||
        entry->items[1].type != RESP_ARRAY) {
        return false;
    }
    uint64_t buried_ms = strtoull(entry->items[0].bytes, NULL, 10);
    *out = (struct letter){.id = entry->items[0].bytes,
                           .fields = &entry->items[1],
                           .age_ms = session->redis_ms > buried_ms ? session->redis_ms - buried_ms : 0};
    return true;
}

/* Copies the answer, because `visit` sends other commands. */
static enum status read_page(struct session *session, const char *from, const char *to, struct resp_value **out,
                             struct err *err)
{
    char key[SESSION_KEY], count[16];
    const struct resp_value *page;
    snprintf(count, sizeof count, "%d", PAGE);
    TRY(SESSION_ASK(session, &page, err, "XRANGE", session_key(session, "dead", "", key), from, to, "COUNT", count));
    *out = resp_clone(page);
    if (!*out) { return err_set(err, STATUS_NO_MEMORY, "no memory for %zu dead letters", page->count); }
    return STATUS_OK;
}

/* Visits each letter that the filter lets through, the oldest first; letters that die meanwhile are left out. `visit`
 * may remove letters. Errors: those of the commands and of `visit`, which ends the walk. */
static enum status each_letter(struct session *session, const struct letter_filter *filter, void *context,
                               enum status (*visit)(void *context, const struct letter *letter, struct err *err),
                               struct err *err)
{
    char from[64], to[64];
    uint64_t now = session->redis_ms;
    uint64_t first = filter->newer_than_ms > 0 && filter->newer_than_ms < now ? now - filter->newer_than_ms : 0;
    uint64_t last = filter->older_than_ms < now ? now - filter->older_than_ms : 0;
    snprintf(from, sizeof from, "%" PRIu64, first);
    snprintf(to, sizeof to, "%" PRIu64, last);
    for (bool more = true; more;) {
        struct resp_value *page;
        TRY(read_page(session, from, to, &page, err));
        enum status status = STATUS_OK;
        for (size_t i = 0; i < page->count && status == STATUS_OK; i++) {
            struct letter letter;
            if (!read_letter(session, &page->items[i], &letter)) {
                status = err_set(err, STATUS_INTERNAL, "XRANGE answered in an unknown shape");
            } else if (passes(&letter, filter)) {
                status = visit(context, &letter, err);
            }
            if (i + 1 == page->count) { snprintf(from, sizeof from, "(%.60s", session_text(&page->items[i].items[0])); }
        }
        more = page->count == PAGE;
        free(page);
        TRY(status);
    }
    return STATUS_OK;
}

/* Visits one letter by its id. Errors: STATUS_NOT_FOUND; else as each_letter. */
static enum status one_letter(struct session *session, const char *id, void *context,
                              enum status (*visit)(void *context, const struct letter *letter, struct err *err),
                              struct err *err)
{
    struct resp_value *page;
    TRY(read_page(session, id, id, &page, err));
    struct letter letter;
    enum status status = page->count == 1 && read_letter(session, &page->items[0], &letter)
                             ? visit(context, &letter, err)
                             : err_set(err, STATUS_NOT_FOUND, "there is no dead letter %s", id);
    free(page);
    return status;
}

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

static void print_json_field(const struct letter *letter, const char *key, const char *field)
{
    const struct resp_value *value = resp_field(letter->fields, field);
    printf(",\"%s\":", key);
    if (value && value->bytes && value->length > 0) {
        print_json_string(stdout, value->bytes, value->length);
    } else {
        fputs("null", stdout);
    }
}

static void list_json(const struct session *session, const struct letter *letter)
{
    const struct resp_value *attempts = resp_field(letter->fields, "_attempts");
    printf("{\"queue\":\"%s\",\"letter\":\"%s\"", session->queue, letter->id);
    print_json_field(letter, "code", "_code");
    print_json_field(letter, "entry", "_entry");
    print_json_field(letter, "id", "id");
    print_json_field(letter, "tenant", "_tenant");
    printf(",\"attempts\":%llu,\"age_ms\":%" PRIu64, strtoull(session_text(attempts), NULL, 10), letter->age_ms);
    print_json_field(letter, "message", "_message");
    puts("}");
}

static enum status list_letter(void *context, const struct letter *letter, struct err *err)
{
    (void)err;
    struct work *work = context;
    char age[DURATION_TEXT];
    work->done++;
    if (work->json) {
        list_json(work->session, letter);
        return STATUS_OK;
    }
    printf("%-20s ", letter->id);
    print_field(letter, "_code", 14);
    putchar(' ');
    print_field(letter, "_entry", 24);
    putchar(' ');
    print_field(letter, "id", 16);
    putchar(' ');
    print_field(letter, "_attempts", 0);
    printf(" attempts, %s ago: ", duration_format(letter->age_ms, age));
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
    char key[SESSION_KEY];
    long long removed;
    if (work->dry_run) { return list_letter(context, letter, err); }
    TRY(SESSION_ASK_NUMBER(work->session, &removed, err, "XDEL", session_key(work->session, "dead", "", key),
                           letter->id));
    work->done += (uint64_t)removed;
    return STATUS_OK;
}

static enum status requeue_letter(void *context, const struct letter *letter, struct err *err)
{
    struct work *work = context;
    if (work->dry_run) { return list_letter(context, letter, err); }
    char dead[SESSION_KEY], high[SESSION_KEY], normal[SESSION_KEY], low[SESSION_KEY];
    struct session *session = work->session;
    if (work->digest[0] == '\0') { TRY(session_load(session, SCRIPT_REQUEUE, work->digest, err)); }
    const struct resp_value *reply;
    TRY(SESSION_ASK(session, &reply, err, "EVALSHA", work->digest, "4", session_key(session, "dead", "", dead),
                    session_key(session, class_streams[CLASS_HIGH], "", high),
                    session_key(session, class_streams[CLASS_NORMAL], "", normal),
                    session_key(session, class_streams[CLASS_LOW], "", low), letter->id));
    if (reply->type != RESP_ARRAY || reply->count == 0) {
        return err_set(err, STATUS_INTERNAL, "lua/requeue answered in an unknown shape");
    }
    if (reply->items[0].integer == 1 && reply->count == 2) {
        printf("%s requeued as %s\n", letter->id, session_text(&reply->items[1]));
        work->done++;
    } else if (reply->items[0].integer == -1) {
        fprintf(stderr, "sluice dead: %s holds no fields to submit again; it stays\n", letter->id);
        work->bodiless++;
    } else if (reply->items[0].integer == -2) {
        fprintf(stderr,
                "sluice dead: %s holds only the beginning of its request (_cut), which was too long to be kept whole; "
                "it stays\n",
                letter->id);
        work->bodiless++;
    }
    return STATUS_OK;
}

struct verb {
    const char *name;
    enum status (*visit)(void *context, const struct letter *letter, struct err *err);
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

static bool filtered(const struct own *own)
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
    if (letters > 0 && (filtered(own) || own->all)) { return "name letters, or use filters and --all, not both"; }
    if (strcmp(verb->name, "show") == 0 && letters == 0 && !filtered(own) && !own->all) {
        return "show needs a letter (the first column of sluice dead list), a filter, or --all";
    }
    if (verb->changes && letters == 0 && !own->all && !own->dry_run) {
        return "this may change many letters: name them, or say --all (all that the filters let through); --dry-run "
               "lists them";
    }
    return NULL;
}

static enum status body(struct session *session, const struct invocation *invocation, struct err *err)
{
    const struct own *own = invocation->own;
    const struct verb *verb = find_verb(invocation);
    struct work work = {.session = session, .dry_run = own->dry_run, .json = own->json};
    enum status status = STATUS_OK;
    if (!own->json) { session_heading(session); }
    if (invocation->operand_count > 1) {
        for (size_t i = 1; i < invocation->operand_count && status == STATUS_OK; i++) {
            status = one_letter(session, invocation->operands[i], &work, verb->visit, err);
        }
    } else {
        struct letter_filter filter = {.code = own->code, .id = own->id};
        if (own->older_than) { (void)duration_parse(own->older_than, &filter.older_than_ms); }
        if (own->newer_than) { (void)duration_parse(own->newer_than, &filter.newer_than_ms); }
        status = each_letter(session, &filter, &work, verb->visit, err);
    }
    if (verb->did) { printf("%" PRIu64 " %s\n", work.done, own->dry_run ? verb->would : verb->did); }
    if (status == STATUS_OK && work.bodiless > 0) {
        return err_set(err, STATUS_BAD_INPUT, "%" PRIu64 " letters could not be requeued", work.bodiless);
    }
    return status;
}

static int run(struct invocation *invocation)
{
    const char *problem = find_problem(invocation, find_verb(invocation));
    if (problem) {
        fprintf(stderr, "sluice dead: %s\n", problem);
        return EX_USAGE;
    }
    return invocation->operand_count > 1 ? session_run_one(invocation, body) : session_run(invocation, body);
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
    .run = run,
};
