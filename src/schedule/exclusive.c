/* The worker that has the whole process: see exclusive.h. */
#include "schedule/exclusive.h"

#include "base/clock.h"

void exclusive_ask(struct exclusive *exclusive, size_t who)
{
    exclusive->workers[who].asks = true;
}

void exclusive_end(struct exclusive *exclusive, size_t who, uint64_t now_ns)
{
    exclusive->workers[who].asks = false;
    if (!exclusive->held || exclusive->holder != who) { return; }
    exclusive->held = exclusive->granted = false;
    exclusive->opens_ns = now_ns + EXCLUSIVE_SLICE_MS * NS_PER_MS;
}

/* Chooses the next asking worker after the last one that had the process, so that they take turns. */
static void choose_worker(struct exclusive *exclusive)
{
    for (size_t i = 1; i <= exclusive->count; i++) {
        size_t who = (exclusive->holder + i) % exclusive->count;
        if (exclusive->workers[who].asks) {
            exclusive->held = true;
            exclusive->holder = who;
            return;
        }
    }
}

static bool all_told(const struct exclusive *exclusive, enum turn turn)
{
    bool told = true;
    for (size_t i = 0; i < exclusive->count; i++) { told &= exclusive->workers[i].told == turn; }
    return told;
}

static enum turn turn_of(const struct exclusive *exclusive, size_t who)
{
    if (!exclusive->held) { return TURN_TOGETHER; }
    return exclusive->granted && exclusive->holder == who ? TURN_EXCLUSIVE : TURN_REST;
}

bool exclusive_next(struct exclusive *exclusive, uint64_t now_ns, bool at_rest, size_t *who, enum turn *turn)
{
    if (!exclusive->held && now_ns >= exclusive->opens_ns && all_told(exclusive, TURN_TOGETHER)) {
        choose_worker(exclusive);
    } else if (exclusive->held && !exclusive->granted && at_rest && all_told(exclusive, TURN_REST)) {
        exclusive->granted = true;
    }
    for (size_t i = 0; i < exclusive->count; i++) {
        if (exclusive->workers[i].told != turn_of(exclusive, i)) {
            exclusive->workers[i].told = *turn = turn_of(exclusive, i);
            *who = i;
            return true;
        }
    }
    return false;
}

uint64_t exclusive_deadline(const struct exclusive *exclusive)
{
    bool wanted = false;
    for (size_t i = 0; i < exclusive->count; i++) { wanted |= exclusive->workers[i].asks; }
    return wanted && !exclusive->held ? exclusive->opens_ns : UINT64_MAX;
}
