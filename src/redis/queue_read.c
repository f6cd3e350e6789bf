#include "redis/queue_read.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "redis/queue_neighbours.h"

enum { READ_GRACE_MS = 2000, ASIDE_MAX = 64, JUDGED_MAX = 128, TIDY_EVERY = 16 };

static void on_claimed(void *context, const struct resp_value *reply);

/* --- Answers ------------------------------------------------------------------------------------------------------ */

/* Delivers the entries at once, because they point into the answer. */
static void give_entries(struct task *task)
{
    struct queue *queue = task->queue;
    struct event event = queue_task_event(task, false);
    event.entries.entries = queue->reads->entries.items;
    event.entries.count = queue->reads->entries.count;
    event.entries.more = queue->reads->entries.more;
    event.entries.last = queue->reads->entries.last;
    event.entries.first = queue->reads->entries.first;
    free(task);
    queue->options.on_event(queue->options.context, &event);
}

static void fail_and_disconnect(struct task *task, const struct err *err)
{
    struct queue *queue = task->queue;
    queue_task_fail(task);
    queue_down(queue, err);
}

/* --- XREADGROUP --------------------------------------------------------------------------------------------------- */

/* Numbers new entries. XREADGROUP returns all that follow each other in a stream, and what the next answer has need not
 * follow the last of them, so a number is left out. */
static void number_entries(struct queue_reads *reads)
{
    reads->place++;
    for (size_t i = 0; i < reads->entries.count; i++) { reads->entries.items[i].place = ++reads->place; }
}

void queue_read_distrust(struct queue *queue)
{
    queue->reads->trusted = queue->reads->place;
}

bool queue_read_trusts(const struct queue *queue, const struct request *request)
{
    return request->identity.place > queue->reads->trusted && !request->lifetime.delivered_again;
}

static void on_entries(void *context, const struct resp_value *reply)
{
    struct task *task = context;
    struct queue *queue = task->queue;
    const char *streams[CLASS_COUNT];
    bool own = task->action.kind == ACTION_READ_OWN;
    struct err err;
    if (!queue_task_answered(task, reply, "XREADGROUP")) { return; }
    for (int c = 0; c < CLASS_COUNT; c++) { streams[c] = queue->streams[c]; }
    if (entries_from_read(&queue->reads->entries, reply, streams, queue->options.max_reply_bytes / CUT_PART, &err)) {
        fail_and_disconnect(task, &err);
        return;
    }
    if (!own) { number_entries(queue->reads); }
    if (own && queue->reads->entries.count == task->action.read.count) { queue->reads->entries.more = true; }
    give_entries(task);
}

/* Reads the streams marked in `reading` from `from` on. */
static void send_read(struct task *task, uint32_t count, uint32_t block_ms, const char *from)
{
    struct queue *queue = task->queue;
    struct command command = {0};
    struct err err;
    command_list(&command, 4, (const char *const[]){"XREADGROUP", "GROUP", QUEUE_GROUP, queue->worker}, NULL);
    command_text(&command, "COUNT");
    command_number(&command, count);
    if (block_ms) {
        command_text(&command, "BLOCK");
        command_number(&command, block_ms);
    }
    command_text(&command, "STREAMS");
    size_t streams = 0;
    for (int c = 0; c < CLASS_COUNT; c++) {
        if (queue->reads->reading[c]) {
            queue_add_stream(queue, &command, (enum request_class)c);
            streams++;
        }
    }
    for (; streams > 0; streams--) { command_text(&command, from); }
    if (connection_send_command(queue->reader, &command, block_ms + READ_GRACE_MS, on_entries, task, &err)) {
        fail_and_disconnect(task, &err);
    }
}

void queue_read(struct task *task)
{
    struct queue *queue = task->queue;
    const struct action *action = &task->action;
    uint32_t least = 0;
    for (int c = 0; c < CLASS_COUNT; c++) {
        uint32_t count = queue_serves(queue, (enum request_class)c) ? action->read.counts[c] : 0;
        queue->reads->reading[c] = count > 0;
        least = count && (!least || count < least) ? count : least;
    }
    if (least) {
        send_read(task, least, action->read.block_ms, ">");
    } else {
        queue_task_fail(task);
    }
}

/* --- XPENDING ----------------------------------------------------------------------------------------------------- */

/* The command for our pending entries, which both READ_OWN by ids and LIST_OWN send. */
struct pending_command {
    char from[ENTRY_ID_TEXT + 1], most[16];
    const char *words[7];
};

static void write_pending_command(struct pending_command *command, const struct queue *queue, enum request_class class,
                                  struct entry_id after, uint32_t most)
{
    command->from[0] = '(';
    entry_id_format(after, command->from + 1);
    snprintf(command->most, sizeof command->most, "%u", most);
    const char *const words[] = {"XPENDING", queue->streams[class], QUEUE_GROUP,  command->from,
                                 "+",        command->most,         queue->worker};
    memcpy(command->words, words, sizeof words);
}

/* One of the answer's items: [id, consumer, idle ms, deliveries]. */
static bool read_pending_id(const struct resp_value *pending, struct entry_id *id)
{
    return pending->type == RESP_ARRAY && pending->count == 4 && resp_entry_id(&pending->items[0], id);
}

static void on_listed(void *context, const struct resp_value *reply)
{
    struct task *task = context;
    struct queue *queue = task->queue;
    struct err err;
    if (!queue_task_answered(task, reply, "XPENDING")) { return; }
    enum status status = reply->type == RESP_ARRAY ? entries_prepare(&queue->reads->entries, reply->count, 0, &err)
                                                   : entries_malformed(&err);
    for (size_t i = 0; !status && i < reply->count; i++) {
        struct entry *entry = &queue->reads->entries.items[queue->reads->entries.count++];
        *entry = (struct entry){.class = task->action.read.class};
        if (!read_pending_id(&reply->items[i], &entry->id)) { status = entries_malformed(&err); }
        queue->reads->entries.last = entry->id;
    }
    if (status) {
        fail_and_disconnect(task, &err);
        return;
    }
    queue->reads->entries.more = reply->count == task->action.read.count;
    give_entries(task);
}

static void list_own(struct task *task)
{
    struct queue *queue = task->queue;
    struct pending_command command;
    struct err err;
    write_pending_command(&command, queue, task->action.read.class, task->action.read.after, task->action.read.count);
    if (connection_command(queue->reader, 7, command.words, NULL, READ_GRACE_MS, on_listed, task, &err)) {
        fail_and_disconnect(task, &err);
    }
}

/* Asks lua/address where the reply to one entry goes. */
static void ask_address(struct task *task)
{
    struct queue *queue = task->queue;
    enum request_class class = task->action.read.class;
    struct command command = {0};
    script_begin(&queue->scripts, SCRIPT_ADDRESS, 2, &command);
    queue_add_stream(queue, &command, class);
    queue_add_key(queue, &command, "trouble", "");
    queue_add_entry_id(&command, task->action.read.after);
    command_text(&command, class_prefixes[class]);
    queue_call(queue, &command, on_claimed, task);
}

void queue_read_own(struct task *task)
{
    char from[ENTRY_ID_TEXT];
    struct queue *queue = task->queue;
    if (task->action.read.own == OWN_IDS) {
        list_own(task);
        return;
    }
    if (task->action.read.own == OWN_ADDRESS) {
        ask_address(task);
        return;
    }
    memset(queue->reads->reading, 0, sizeof queue->reads->reading);
    queue->reads->reading[task->action.read.class] = true;
    entry_id_format(task->action.read.after, from);
    send_read(task, task->action.read.count, 0, from);
}

/* --- LIST_OWN ----------------------------------------------------------------------------------------------------- */

static bool read_own_ids(struct own_list *list, enum request_class class, const struct resp_value *reply)
{
    bool ok = reply->type == RESP_ARRAY && reply->count <= OWN_LIST_MAX;
    for (size_t i = 0; ok && i < reply->count; i++) { ok = read_pending_id(&reply->items[i], &list->ids[class][i]); }
    list->counts[class] = ok ? (uint32_t)reply->count : 0;
    return ok;
}

/* The answers come in the order of the classes; a stream of a wrong type only fails for its class. This call is counted
 * last, because queue_refused may close the connection, which answers the others before it returns. */
static void on_own_ids(void *context, const struct resp_value *reply)
{
    struct task *task = context;
    struct queue *queue = task->queue;
    enum request_class class = (enum request_class)(CLASS_COUNT - task->calls);
    bool other_type = reply && resp_is_error(reply, "WRONGTYPE");
    if (!other_type &&
        (!reply || queue_refused(queue, reply, "XPENDING") || !read_own_ids(&queue->own_list, class, reply))) {
        task->failed = true;
    }
    if (--task->calls == 0) { queue_task_end(task, queue_task_event(task, task->failed)); }
}

void queue_list_own(struct task *task)
{
    struct queue *queue = task->queue;
    struct pending_command commands[CLASS_COUNT];
    queue->own_list = (struct own_list){0};
    task->calls = CLASS_COUNT;
    for (int c = 0; c < CLASS_COUNT; c++) {
        write_pending_command(&commands[c], queue, (enum request_class)c, task->action.after[c], OWN_LIST_MAX);
    }
    for (int c = 0; c < CLASS_COUNT; c++) { /* one that cannot be sent is answered with NULL */
        queue_command(queue, 7, commands[c].words, on_own_ids, task);
    }
}

/* --- Claims ------------------------------------------------------------------------------------------------------- */

/* A script makes these entries ours: those of dead workers, and those that shed, fair or sweep take. All their answers
 * have the same shape. */

/* A consumer of the group. Other tools may use any bytes, and any number of them, as a name. */
struct consumer_name {
    const char *bytes;
    size_t length;
};

/* Writes a name as a word: letters, digits and .-_ as they are (so a worker's name is unchanged), other bytes as %XX;
 * an empty name becomes a single %. Returns its length, or 0 if it does not fit with its NUL. Shapes: to [size]. */
static size_t put_word(char *to, size_t size, const struct consumer_name *name)
{
    size_t length = 0;
    if (size < 2) { return 0; }
    for (size_t i = 0; i < name->length && length + 4 <= size; i++) {
        unsigned char c = (unsigned char)name->bytes[i];
        if (isalnum(c) || c == '.' || c == '-' || c == '_') {
            to[length++] = (char)c;
        } else {
            length += (size_t)snprintf(to + length, size - length, "%%%02X", c);
        }
        if (i + 1 < name->length && length + 4 > size) { return 0; }
    }
    if (name->length == 0) { to[length++] = '%'; }
    to[length] = '\0';
    return length;
}

/* Reads a word back, in place. */
static struct consumer_name read_word(char *word)
{
    struct consumer_name name = {word, 0};
    for (char *at = word; *at; name.length++) {
        unsigned byte;
        if (*at == '%' && sscanf(at + 1, "%2x", &byte) == 1 && at[1] && at[2]) {
            word[name.length] = (char)byte;
            at += 3;
        } else if (*at == '%' && at[1] == '\0') {
            return name;
        } else {
            word[name.length] = *at++;
        }
    }
    return name;
}

/* Notes the consumers whose entries a reclaim left: the housekeeper's pulse offers them to other workers. A consumer
 * whose name does not fit remains the housekeeper's. */
static void note_left(struct queue *queue, enum request_class class, const struct resp_value *names)
{
    char *left = queue->reads->left[class];
    size_t length = 0, size = sizeof queue->reads->left[class];
    left[0] = '\0';
    for (size_t i = 0; names && names->type == RESP_ARRAY && i < names->count; i++) {
        const struct consumer_name name = {names->items[i].bytes, names->items[i].length};
        size_t word = names->items[i].type == RESP_STRING ? put_word(left + length, size - length - 1, &name) : 0;
        if (word > 0) {
            length += word;
            left[length++] = ' ';
        }
        left[length] = '\0';
    }
}

void queue_add_left(const struct queue *queue, struct command *command)
{
    char left[QUEUE_FOUND_MAX];
    size_t length = 0;
    left[0] = '\0';
    for (int c = 0; c < CLASS_COUNT; c++) {
        length += (size_t)snprintf(left + length, sizeof left - length, "%s", queue->reads->left[c]);
    }
    command_bytes(command, left, length > 0 ? length - 1 : 0); /* without the last space */
}

void queue_take_found(struct queue *queue, const char *found)
{
    snprintf(queue->reads->found, sizeof queue->reads->found, "%s", found);
    if (!queue->elected) { memset(queue->reads->left, 0, sizeof queue->reads->left); }
}

static void on_claimed(void *context, const struct resp_value *reply)
{
    struct task *task = context;
    struct queue *queue = task->queue;
    struct err err;
    if (!queue_task_answered(task, reply, "claiming entries")) { return; }
    if (entries_from_claim(&queue->reads->entries, reply, task->action.read.class, &err)) {
        fail_and_disconnect(task, &err);
    } else {
        if (task->action.kind == ACTION_RECLAIM && reply->count > 4) {
            note_left(queue, task->action.read.class, &reply->items[4]);
        }
        if (task->action.kind == ACTION_SWEEP && queue->reads->entries.count > 0) {
            log_warn("orphans_found", log_str("queue", queue->options.name),
                     log_int("entries", (int64_t)queue->reads->entries.count));
        }
        give_entries(task);
    }
}

/* --- RECLAIM ------------------------------------------------------------------------------------------------------ */

static bool is_other(const struct queue *queue, const struct consumer_name *name)
{
    const char *const own[] = {queue->worker, QUEUE_RELEASED, QUEUE_AHEAD};
    bool other = true;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        other = other && !(name->length == strlen(own[i]) && memcmp(name->bytes, own[i], name->length) == 0);
    }
    return other;
}

static const struct resp_value *consumer_at(const struct resp_value *consumers, size_t index)
{
    const struct resp_value *consumer = &consumers->items[index];
    return consumer->type == RESP_ARRAY && consumer->count >= 4 ? consumer : NULL;
}

static bool holds_some(const struct resp_value *consumer)
{
    return consumer->items[3].type != RESP_INTEGER || consumer->items[3].integer > 0;
}

/* True if another consumer holds entries. Consumers without entries are checked only now and then, and deleted. */
static bool worth_judging(struct task *task, const struct resp_value *consumers)
{
    struct queue *queue = task->queue;
    for (size_t i = 0; i < consumers->count; i++) {
        const struct resp_value *consumer = consumer_at(consumers, i);
        if (consumer && !resp_equals(&consumer->items[1], queue->worker) && holds_some(consumer)) { return true; }
    }
    return queue->reads->judged[task->action.read.class]++ % TIDY_EVERY == 0;
}

/* Logs a consumer that is no worker but holds entries: when it is first seen, and again if it comes back after a while.
 * Remembers FOREIGN_KNOWN of them; any beyond that are not logged. */
static void log_foreign(struct queue *queue, const struct consumer_name *name, long long entries)
{
    enum { FORGET_S = 60, SHOWN = 132 };
    char word[3 * SHOWN + 2];
    uint64_t now_ns = clock_now_ns(), hash = 0xcbf29ce484222325u; /* FNV-1a */
    struct foreign *known = queue->reads->foreign, *oldest = known;
    for (size_t i = 0; i < name->length; i++) { hash = (hash ^ (unsigned char)name->bytes[i]) * 0x100000001b3u; }
    for (struct foreign *at = known; at < known + FOREIGN_KNOWN && oldest->hash != hash; at++) {
        if (at->hash == hash || at->seen_ns < oldest->seen_ns) { oldest = at; }
    }
    bool recent = oldest->seen_ns > 0 && now_ns - oldest->seen_ns < FORGET_S * NS_PER_S;
    if (recent && oldest->hash != hash) { return; }
    *oldest = (struct foreign){hash, now_ns};
    if (recent) { return; }
    const struct consumer_name shown = {name->bytes, name->length < SHOWN ? name->length : SHOWN};
    (void)put_word(word, sizeof word, &shown);
    log_warn("foreign_consumer", log_str("queue", queue->options.name), log_str("consumer", word),
             log_int("consumer_bytes", (int64_t)name->length), log_int("entries", entries),
             log_str("reason", "a consumer that is no worker has read requests; workers take them over"));
}

/* Lists the consumers that another worker found; splits `words` [size]. */
static size_t found_names(const struct queue *queue, char *words, size_t size, struct consumer_name *names, size_t most)
{
    size_t count = 0;
    char *rest = words;
    snprintf(words, size, "%s", queue->reads->found);
    for (char *word; count < most && (word = strtok_r(rest, " ", &rest));) {
        struct consumer_name name = read_word(word);
        if (is_other(queue, &name)) { names[count++] = name; }
    }
    return count;
}

/* Lists the consumers that XINFO named, from where the last call ended. */
static size_t listed_names(struct task *task, const struct resp_value *consumers, struct consumer_name *names,
                           size_t most)
{
    struct queue *queue = task->queue;
    size_t *offset = &queue->reads->offset[task->action.read.class], count = 0, seen = 0;
    size_t start = consumers->count > 0 ? *offset % consumers->count : 0;
    for (; seen < consumers->count && count < most; seen++) {
        const struct resp_value *consumer = consumer_at(consumers, (start + seen) % consumers->count);
        if (!consumer || consumer->items[1].type != RESP_STRING) { continue; }
        struct consumer_name name = {consumer->items[1].bytes, consumer->items[1].length};
        if (!is_other(queue, &name)) { continue; }
        if (holds_some(consumer) && !queue_worker_name_is(name.bytes, name.length)) {
            log_foreign(queue, &name, consumer->items[3].integer);
        }
        names[count++] = name;
    }
    *offset = start + seen;
    return count;
}

/* True if a worker of this name may have a lease. */
static bool may_live(const struct consumer_name *name)
{
    return name->length < QUEUE_WORKER_MAX;
}

static void add_alive_key(const struct queue *queue, struct command *command, const struct consumer_name *name)
{
    char key[QUEUE_KEY_MAX];
    size_t length = strlen(queue_key(queue, "alive:", "", key));
    memcpy(key + length, name->bytes, name->length);
    command_bytes(command, key, length + name->length);
}

/* Calls lua/reclaim for released entries and for at most JUDGED_MAX consumers: those that XINFO named, or if it is
 * NULL, those that the housekeeper found and the neighbours whose processes have ended. Consumers that cannot have a
 * lease come last, without a key. */
static void call_reclaim(struct task *task, const struct resp_value *consumers)
{
    struct queue *queue = task->queue;
    enum request_class class = task->action.read.class;
    struct consumer_name names[JUDGED_MAX + 2] = {{QUEUE_RELEASED, strlen(QUEUE_RELEASED)},
                                                  {QUEUE_AHEAD, strlen(QUEUE_AHEAD)}};
    char words[QUEUE_FOUND_MAX];
    size_t count = 2, keys = 0;
    unsigned at = 0;
    count += consumers ? listed_names(task, consumers, &names[2], JUDGED_MAX)
                       : found_names(queue, words, sizeof words, &names[2], JUDGED_MAX - GONE_MAX);
    for (const char *name; !consumers && (name = queue_gone(queue, &at)) != NULL;) {
        names[count++] = (struct consumer_name){name, strlen(name)};
    }
    for (size_t i = 0; i < count; i++) { keys += may_live(&names[i]); }
    struct command command = {0};
    script_begin(&queue->scripts, SCRIPT_RECLAIM, 2 + keys, &command);
    queue_add_stream(queue, &command, class);
    queue_add_key(queue, &command, "trouble", "");
    for (size_t i = 0; i < count; i++) {
        if (may_live(&names[i])) { add_alive_key(queue, &command, &names[i]); }
    }
    command_text(&command, queue->worker);
    command_number(&command, task->action.read.count);
    command_number(&command, queue->options.max_reply_bytes / CUT_PART);
    command_text(&command, class_prefixes[class]);
    for (size_t i = 0; i < count; i++) {
        if (may_live(&names[i])) { command_bytes(&command, names[i].bytes, names[i].length); }
    }
    for (size_t i = 0; i < count; i++) {
        if (!may_live(&names[i])) { command_bytes(&command, names[i].bytes, names[i].length); }
    }
    queue_call(queue, &command, on_claimed, task);
}

static void on_consumers(void *context, const struct resp_value *reply)
{
    struct task *task = context;
    if (!queue_task_answered(task, reply, "XINFO CONSUMERS")) { return; }
    if (worth_judging(task, reply)) {
        call_reclaim(task, reply);
    } else {
        note_left(task->queue, task->action.read.class, NULL);
        queue_task_end(task, queue_task_event(task, false));
    }
}

void queue_reclaim(struct task *task)
{
    struct queue *queue = task->queue;
    if (task->action.read.judge) {
        const char *const words[] = {"XINFO", "CONSUMERS", queue->streams[task->action.read.class], QUEUE_GROUP};
        queue_command(queue, 4, words, on_consumers, task);
    } else {
        call_reclaim(task, NULL);
    }
}

/* --- SHED, FAIR, SWEEP -------------------------------------------------------------------------------------------- */

void queue_shed(struct task *task)
{
    struct queue *queue = task->queue;
    const struct action *action = &task->action;
    struct command command = {0};
    script_begin(&queue->scripts, SCRIPT_SHED, 2, &command);
    queue_add_stream(queue, &command, action->read.class);
    queue_add_key(queue, &command, "trouble", "");
    command_text(&command, queue->worker);
    command_number(&command, action->read.cap);
    command_number(&command, action->read.count);
    command_number(&command, queue->options.max_reply_bytes / CUT_PART);
    queue_add_entry_id(&command, action->read.after);
    queue_add_entry_id(&command, action->read.before);
    queue_call(queue, &command, on_claimed, task);
}

void queue_fair(struct task *task)
{
    struct queue *queue = task->queue;
    const struct action *action = &task->action;
    struct command command = {0};
    script_begin(&queue->scripts, SCRIPT_FAIR, 1, &command);
    queue_add_stream(queue, &command, action->read.class);
    command_text(&command, action->read.count > 0 ? queue->worker : QUEUE_AHEAD);
    queue_add_entry_id(&command, action->read.after);
    command_number(&command, action->read.count > 0 ? action->read.count : ASIDE_MAX);
    command_number(&command, queue->options.max_reply_bytes / CUT_PART);
    for (uint32_t i = 0; i < action->read.enough_count; i++) { command_text(&command, action->read.enough[i]); }
    queue_call(queue, &command, on_claimed, task);
}

void queue_sweep(struct task *task)
{
    struct queue *queue = task->queue;
    const struct action *action = &task->action;
    struct command command = {0};
    script_begin(&queue->scripts, SCRIPT_SWEEP, 4, &command);
    queue_add_stream(queue, &command, action->read.class);
    queue_add_keys(queue, &command, "trouble", "later", "later:data", NULL);
    command_text(&command, queue->worker);
    queue_add_entry_id(&command, action->read.after);
    command_number(&command, action->read.count);
    command_number(&command, queue->options.max_reply_bytes / CUT_PART);
    command_text(&command, class_prefixes[action->read.class]);
    queue_call(queue, &command, on_claimed, task);
}
