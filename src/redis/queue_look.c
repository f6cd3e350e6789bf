#include "redis/queue_look.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/duration.h"
#include "redis/queue_entries.h"

/* The oldest entry is the oldest pending one, which XPENDING names, although an older one may be unread where `fair` or
 * `shed` took newer ones first. If none is pending, only XRANGE names the oldest unread one, but it brings its body
 * along; so a large one is asked for rarely. */
enum { LARGE_BYTES = 64 << 10, LARGE_LOOKS = 32 };

/* The least time between two looks. Pulses come more often while something waits for Redis' memory. */
enum { EVERY_MS = 900 };

/* [count, id of the oldest, …]. Its answer follows that of XLEN. */
static void read_pending(struct queue_looking *looking, int class, const struct resp_value *reply)
{
    struct queue_look *next = &looking->next;
    bool any = reply->type == RESP_ARRAY && reply->count >= 2 && queue_number(&reply->items[0]) > 0;
    uint64_t pending = any ? queue_number(&reply->items[0]) : 0;
    next->pending[class] = pending;
    next->unread[class] -= pending < next->unread[class] ? pending : next->unread[class];
    (void)resp_entry_id(any ? &reply->items[1] : NULL, &next->oldest[class]);
}

static void read_meta(struct queue_looking *looking, int class, const struct resp_value *reply)
{
    (void)class;
    bool ok = reply->type == RESP_ARRAY && reply->count == 2 * CLASS_COUNT;
    for (size_t c = 0; c < CLASS_COUNT; c++) {
        const char *wait = ok ? reply->items[c].bytes : NULL, *cap = ok ? reply->items[CLASS_COUNT + c].bytes : NULL;
        long long most = cap ? atoll(cap) : 0;
        looking->next.wait_ms[c] = wait ? atoll(wait) : -1;
        looking->next.cap[c] = most > 0 ? (uint64_t)most : 0;
    }
}

/* A value of an earlier day, or nil, means that nothing has ended today. */
static void read_today(struct queue_looking *looking, int class, const struct resp_value *reply)
{
    (void)class;
    struct queue_look *next = &looking->next;
    struct day_counts counts;
    uint64_t day;
    bool ok = reply->bytes && day_counts_parse(reply->bytes, &day, &counts) && day == next->redis_ms / DAY_MS;
    if (ok) { next->today = counts; }
}

/* The reply is a string, nil, or an error for a key of another type, which is a pause, too. */
static void read_pause(struct queue_looking *looking, int class, const struct resp_value *reply)
{
    (void)class;
    if (reply->bytes && reply->type == RESP_STRING) {
        pause_parse(reply->bytes, reply->length, &looking->next.pause);
    } else {
        looking->next.pause.on = resp_is_error(reply, "WRONGTYPE");
    }
}

/* [[id, [field, value, …]]]; empty if the entry has gone meanwhile. */
static void read_oldest(struct queue_looking *looking, int class, const struct resp_value *reply)
{
    uint64_t bytes = 0;
    if (reply->type != RESP_ARRAY || reply->count != 1) { return; }
    bool whole = entry_weighed(&reply->items[0], &looking->next.oldest[class], &bytes);
    looking->large[class] = !whole || bytes > LARGE_BYTES;
}

#define TO(member) NULL, 0, offsetof(struct queue_look, member)

/* The commands. A word after @ is a key of the queue, # is Redis' time, % the field of its day. */
static const struct look_command {
    const char *words[9];
    void (*read)(struct queue_looking *looking, int class,
                 const struct resp_value *reply); /* NULL: the answer is a number */
    int class;
    size_t to; /* the offset in struct queue_look of that number */
} commands[LOOK_COMMANDS] = {
    {{"XLEN", "@requests:high"}, TO(unread[CLASS_HIGH])},
    {{"XLEN", "@requests"}, TO(unread[CLASS_NORMAL])},
    {{"XLEN", "@requests:low"}, TO(unread[CLASS_LOW])},
    {{"XPENDING", "@requests:high", QUEUE_GROUP}, read_pending, CLASS_HIGH},
    {{"XPENDING", "@requests", QUEUE_GROUP}, read_pending, CLASS_NORMAL},
    {{"XPENDING", "@requests:low", QUEUE_GROUP}, read_pending, CLASS_LOW},
    {{"ZCARD", "@later"}, TO(later)},
    {{"ZCOUNT", "@later", "-inf", "#"}, TO(due)},
    {{"XLEN", "@dead"}, TO(dead)},
    {{"HMGET", "@meta", "wait_ms_high", "wait_ms_normal", "wait_ms_low", "cap_high", "cap_normal", "cap_low"},
     read_meta,
     0},
    {{"HGET", "@stats", "%"}, read_today, 0},
    {{"GET", "@paused"}, read_pause, 0},
    {{"PEXPIRETIME", "@paused"}, TO(pause.until_ms)},
    {{"XRANGE", "@requests:high", "-", "+", "COUNT", "1"}, read_oldest, CLASS_HIGH}, /* the last three: by need */
    {{"XRANGE", "@requests", "-", "+", "COUNT", "1"}, read_oldest, CLASS_NORMAL},
    {{"XRANGE", "@requests:low", "-", "+", "COUNT", "1"}, read_oldest, CLASS_LOW},
};

enum { ALWAYS = LOOK_COMMANDS - CLASS_COUNT };

static void on_answer(void *context, const struct resp_value *reply);

static void ask_count(struct queue *queue, size_t which)
{
    const struct look_command *command = &commands[which];
    const char *words[sizeof command->words / sizeof command->words[0]];
    char key[QUEUE_KEY_MAX], now[24], today[DAY_FIELD];
    size_t count = 0;
    snprintf(now, sizeof now, "%" PRIu64, queue->looking->next.redis_ms);
    day_field(queue->looking->next.redis_ms / DAY_MS, today);
    for (; command->words[count]; count++) {
        const char *word = command->words[count];
        words[count] = word[0] == '@'   ? queue_key(queue, word + 1, "", key)
                       : word[0] == '#' ? now
                       : word[0] == '%' ? today
                                        : word;
    }
    queue->looking->calls[which] = (struct look_call){queue, which};
    queue->looking->out++;
    queue_command(queue, count, words, on_answer, &queue->looking->calls[which]);
}

static void ask_for_oldest(struct queue *queue)
{
    struct queue_looking *looking = queue->looking;
    bool again = looking->looks++ % LARGE_LOOKS == 0;
    for (size_t c = 0; c < CLASS_COUNT && !looking->failed; c++) {
        if (looking->next.pending[c] > 0 || looking->next.unread[c] == 0) {
            continue;
        } else if (looking->large[c] && !again) {
            looking->next.oldest[c] = looking->last.oldest[c];
        } else {
            looking->large[c] = true; /* unless the answer says otherwise; a large entry may end the connection */
            ask_count(queue, ALWAYS + c);
        }
    }
}

/* Answers come in the order of the commands. */
static void on_answer(void *context, const struct resp_value *reply)
{
    const struct look_call *call = context;
    struct queue *queue = call->queue;
    struct queue_looking *looking = queue->looking;
    looking->failed = looking->failed || !reply;
    looking->out--;
    if (looking->failed) { return; }
    const struct look_command *command = &commands[call->which];
    if (command->read) {
        command->read(looking, command->class, reply);
    } else {
        *(uint64_t *)(void *)((char *)&looking->next + command->to) = queue_number(reply);
    }
    if (call->which == ALWAYS - 1) { ask_for_oldest(queue); }
    if (looking->out == 0 && !looking->failed) { looking->last = looking->next; }
}

void queue_look_now(struct queue *queue, uint64_t redis_ms)
{
    struct queue_looking *looking = queue->looking;
    uint64_t now_ms = clock_now_ms();
    if (looking->out > 0 || now_ms - looking->asked_ms < EVERY_MS) { return; }
    looking->asked_ms = now_ms;
    looking->next = (struct queue_look){.redis_ms = redis_ms};
    looking->failed = false;
    for (size_t i = 0; i < ALWAYS && !looking->failed; i++) { ask_count(queue, i); }
}

void queue_look_start(struct queue *queue)
{
    queue->looking->last = (struct queue_look){0};
    queue->looking->asked_ms = 0;
}

const struct queue_look *queue_looked(const struct queue *queue)
{
    static const struct queue_look unknown;
    return queue->state == QUEUE_UP ? &queue->looking->last : &unknown;
}
