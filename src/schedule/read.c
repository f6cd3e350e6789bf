/* Reads of new entries: how many to ask for in each class, and when.
 *
 * One read is out at a time, and it blocks. A blocking read of streams with entries returns at once, so a busy queue
 * never waits, and an idle one costs one call in two seconds. Each class has its own credit; a class without room is
 * left out, and a read that blocks without it is ended when the class has room. */
#include "schedule/worker/read.h"

#include "base/clock.h"
#include "schedule/worker_internal.h"

enum { UNBLOCK_AGAIN_MS = 100, CREDIT_BYTES = 64 << 20, DEEP_CREDIT_BYTES = 256 << 20, READ_BLOCK_MS = 2000 };
enum { READ_MAX = 128 }; /* entries in one read; larger answers make Redis wait for the settles after them */

void read_open(struct worker *worker)
{
    const struct request_rules *rules = &worker->options.rules;
    for (int c = 0; c < CLASS_COUNT; c++) {
        worker->read.classes[c].mean_tokens = rules->max_tokens;
        worker->read.classes[c].mean_bytes =
            (double)sizeof(struct request) + rules->dim * 16.0 + rules->max_tokens * 8.0;
        worker->read.classes[c].largest_bytes = rules->max_text_bytes;
    }
}

/* --- credit --- */

struct credit {
    double tokens, bytes;
};

uint64_t read_credit_bytes(const struct worker *worker)
{
    uint64_t bytes = worker->options.credit_bytes, usual = worker_is_deep(worker) ? DEEP_CREDIT_BYTES : CREDIT_BYTES;
    return (bytes > 0 ? bytes : usual) * worker_devices(worker);
}

/* Bulk work waits in Redis: class low holds no more than fills the batches that may be out. While Redis' memory is
 * low, no class holds more than a batch per slot. */
static struct credit credit_of(const struct worker *worker, enum request_class class)
{
    const struct worker_options *options = &worker->options;
    double given = (double)worker_devices(worker) * options->credit_tokens;
    struct credit credit = {given > 0 ? given : worker->pace.second_tokens, (double)read_credit_bytes(worker)};
    if (head_does(options->rules.head, TASK_GENERATE)) { /* those that are written, and the next ones */
        credit.tokens = 2.0 * options->batches_out * worker->read.classes[class].mean_tokens;
        return credit;
    }
    double low = (double)options->batches_out * options->max_batch_tokens;
    double scarce = (double)options->engine_slots * options->max_batch_tokens;
    if (class == CLASS_LOW && low < credit.tokens) { credit.tokens = low; }
    if (worker->memory.level != MEMORY_ROOM && scarce < credit.tokens) { credit.tokens = scarce; }
    return credit;
}

double read_credit_tokens(const struct worker *worker, enum request_class class)
{
    return credit_of(worker, class).tokens;
}

/* The number of entries of the class's mean weight that fit into a credit. */
static uint32_t entries_in(const struct read_class *state, struct credit credit)
{
    double by_tokens = credit.tokens / (state->mean_tokens < 1 ? 1 : state->mean_tokens);
    double by_bytes = credit.bytes / (state->mean_bytes < 1 ? 1 : state->mean_bytes);
    double entries = by_tokens < by_bytes ? by_tokens : by_bytes;
    return entries < 0 ? 0 : entries > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)entries;
}

uint32_t read_room(const struct worker *worker, enum request_class class)
{
    const struct read_class *state = &worker->read.classes[class];
    const struct held_sum *held = &worker->held.sums[class];
    struct credit credit = credit_of(worker, class);
    credit.tokens -= (double)held->tokens;
    credit.bytes -= (double)held->bytes;
    uint32_t entries = entries_in(state, credit), asked = worker->chores.asked[class];
    if (held->count == 0 && asked == 0 && entries == 0) { /* one must be possible, however heavy entries are */
        return memory_reads(worker, 1);
    }
    return memory_reads(worker, entries > asked ? entries - asked : 0);
}

uint32_t read_room_ahead(const struct worker *worker, enum request_class class)
{
    struct credit credit = credit_of(worker, class);
    credit.tokens = credit.tokens / 4 - (double)worker->held.ahead[class].tokens;
    credit.bytes = credit.bytes / 4 - (double)worker->held.ahead[class].bytes;
    return entries_in(&worker->read.classes[class], credit);
}

/* The most bytes of one answer: fewer while Redis' memory is low, because the answer takes some of it. */
static double answer_bytes(const struct worker *worker)
{
    double part = (double)worker->pulse.last.most_bytes / 64, most = (double)limits_answer_bytes(worker);
    return worker->memory.level != MEMORY_ROOM && part < most ? part : most;
}

/* Limits the entries of a class in one read: the answer, and the rows that are allocated for them, stay small enough
 * even if each entry is as large as the largest recent one. */
uint32_t read_max(const struct worker *worker, enum request_class class, uint32_t most)
{
    double largest = worker->read.classes[class].largest_bytes,
           fit = answer_bytes(worker) / (largest < 1 ? 1 : largest);
    uint64_t rows = (uint64_t)worker->options.rules.max_inputs * sizeof(struct row);
    uint64_t by_rows = rows == 0 ? most : read_credit_bytes(worker) / rows;
    most = by_rows < most ? (uint32_t)by_rows : most;
    most = fit < most ? (uint32_t)fit : most;
    return most < 1 ? 1 : most;
}

/* Prefers few large reads to many small ones: less than a quarter of the room is not worth a read. */
static uint32_t worthwhile_room(const struct worker *worker, enum request_class class)
{
    uint32_t most = read_max(worker, class, READ_MAX);
    uint32_t whole = memory_reads(worker, entries_in(&worker->read.classes[class], credit_of(worker, class)));
    uint32_t least = whole / 4 < most / 4 ? whole / 4 : most / 4, room = read_room(worker, class);
    return room < least ? 0 : room < most ? room : most;
}

void read_note_tokens(struct worker *worker, enum request_class class, uint32_t tokens)
{
    worker_weigh(&worker->read.classes[class].mean_tokens, tokens);
}

void read_note_bytes(struct worker *worker, enum request_class class, double bytes)
{
    worker_weigh(&worker->read.classes[class].mean_bytes, bytes);
}

/* Lets the next read of a class bring twice as many entries if this one brought no large ones. */
static void weigh_answer(struct worker *worker, const struct event *event)
{
    bool seen[CLASS_COUNT] = {false};
    for (size_t i = 0; i < event->entries.count; i++) { seen[event->entries.entries[i].class] = true; }
    for (int c = 0; c < CLASS_COUNT; c++) { worker->read.classes[c].largest_bytes /= seen[c] ? 2 : 1; }
    for (size_t i = 0; i < event->entries.count; i++) {
        double bytes = (double)entry_bytes(&event->entries.entries[i]);
        struct read_class *state = &worker->read.classes[event->entries.entries[i].class];
        if (bytes > state->largest_bytes) { state->largest_bytes = bytes; }
    }
}

/* --- the read --- */

/* Redis takes one COUNT for all streams. A class with far less room than a busy one would make the busy one's reads
 * small, so it is left out of every second read, which then does not block. */
static bool leave_small_out(struct worker *worker, uint32_t counts[CLASS_COUNT])
{
    uint32_t most = 0;
    bool left_out = false;
    for (int c = 0; c < CLASS_COUNT; c++) {
        if (worker->read.classes[c].busy && counts[c] > most) { most = counts[c]; }
    }
    worker->read.small_turn = !worker->read.small_turn;
    for (int c = 0; c < CLASS_COUNT && !worker->read.small_turn; c++) {
        if (counts[c] > 0 && counts[c] < most / 4) {
            counts[c] = 0;
            left_out = true;
        }
    }
    return left_out;
}

static void read_more(struct worker *worker)
{
    uint32_t counts[CLASS_COUNT], least = 0;
    limits_asked(worker);
    for (int c = 0; c < CLASS_COUNT; c++) {
        counts[c] = worthwhile_room(worker, (enum request_class)c);
        worker->read.classes[c].left_out = counts[c] == 0;
    }
    bool small_left_out = leave_small_out(worker, counts);
    for (int c = 0; c < CLASS_COUNT; c++) {
        if (counts[c] > 0 && (least == 0 || counts[c] < least)) { least = counts[c]; }
    }
    struct action *action = least == 0 ? NULL : worker_act(worker, ACTION_READ);
    if (!action) { return; }
    for (int c = 0; c < CLASS_COUNT; c++) { action->read.counts[c] = counts[c] > 0 ? least : 0; }
    uint32_t block_ms = worker->options.read_block_ms;
    action->read.count = least;
    action->read.block_ms = small_left_out ? 0 : block_ms > 0 ? block_ms : READ_BLOCK_MS;
    worker->read.count = least;
    worker->read.out = true;
    worker->read.unblock_at = 0;
}

/* A class is busy if a read brought as many of its entries as were requested. */
static void note_new(struct worker *worker, const struct event *event)
{
    uint32_t counts[CLASS_COUNT] = {0};
    worker->read.out = false;
    limits_new_answered(worker, event->failed);
    if (event->failed || event->entries.more) { /* entries that it may have brought are in our own lists */
        own_read_again(worker);
    }
    if (event->failed) { return; }
    for (size_t i = 0; i < event->entries.count; i++) {
        const struct entry *entry = &event->entries.entries[i];
        counts[entry->class]++;
        worker->read.classes[entry->class].newest = entry->id;
    }
    for (int c = 0; c < CLASS_COUNT; c++) { worker->read.classes[c].busy = counts[c] >= worker->read.count; }
}

/* Returns whether the read in flight should stop blocking. */
static bool in_the_way(const struct worker *worker)
{
    bool better = !worker_claims(worker) || worker->now >= worker->own.at || own_stray_fits(worker);
    for (int c = 0; c < CLASS_COUNT && !better; c++) {
        better = worker->read.classes[c].left_out && worthwhile_room(worker, (enum request_class)c) > 0;
    }
    return better;
}

/* Unblocks repeatedly, because an unblock may overtake the read that it should end. */
static void advance_unblock(struct worker *worker)
{
    bool wanted = worker->read.out && worker_may_call(worker) && in_the_way(worker);
    if (wanted && worker->now >= worker->read.unblock_at && worker_act(worker, ACTION_UNBLOCK)) {
        worker->read.unblock_at = worker_after_ms(worker, UNBLOCK_AGAIN_MS);
    } else if (!wanted) {
        worker->read.unblock_at = 0;
    }
}

/* --- events --- */

static enum entry_origin origin_of(const struct event *event, const struct entry *entry, bool unsure)
{
    switch (event->entries.source) {
    case READ_OWN:
        return unsure ? ORIGIN_RECLAIMED : ORIGIN_OWN;
    case READ_RECLAIM:
        return entry->origin;
    case READ_SHED:
        return ORIGIN_SHED;
    case READ_FAIR:
        return ORIGIN_FAIR;
    case READ_SWEEP:
        return ORIGIN_RELEASED;
    case READ_NEW:
        break;
    }
    return ORIGIN_NEW;
}

void read_entries(struct worker *worker, const struct event *event)
{
    bool unsure = worker->own.unsure;
    enum own_part part = event->entries.source == READ_OWN ? worker->own.part : OWN_ENTRIES;
    if (part == OWN_ENTRIES) { weigh_answer(worker, event); }
    if (event->entries.source == READ_OWN && own_take_strays(worker, event)) { return; }
    if (event->entries.source == READ_NEW) {
        note_new(worker, event);
    } else if (event->entries.source == READ_OWN) {
        own_answered(worker, event);
    } else if (event->entries.source == READ_SHED || event->entries.source == READ_FAIR) {
        fairness_answered(worker, event);
    } else {
        chores_claimed(worker, event);
    }
    if (event->failed) {
        worker_call_failed(worker);
        return;
    }
    if (worker->leave.draining || part == OWN_IDS) { /* the last release gives the entries back */
        return;
    }
    for (size_t i = 0; i < event->entries.count; i++) {
        struct entry entry = event->entries.entries[i];
        entry.origin = origin_of(event, &entry, unsure);
        entry.redis_ms = worker_redis_ms(worker);
        if (part == OWN_ADDRESS && !entry.vanished) { entry.oversize = entry.undeliverable = true; }
        if (event->entries.source != READ_OWN || part == OWN_ADDRESS || own_has_room(worker, &entry)) {
            admit_entry(worker, &entry);
        }
    }
}

void read_advance(struct worker *worker)
{
    advance_unblock(worker);
    if (!worker_may_call(worker) || !worker_takes_more(worker) || worker->read.out || worker->own.reading) { return; }
    if (worker->quarantine.turn !=
        TURN_TOGETHER) { /* a read may kill the process, and a suspect that runs alone would be blamed */
        return;
    }
    if (worker->now >= worker->own.at) {
        if (!own_waits(worker)) { own_read(worker); }
    } else if (!own_read_strays(worker) && worker_claims(worker)) {
        read_more(worker);
    }
}
