#include "work/alone.h"

#include "base/clock.h"

void alone_ask(struct alone *alone, size_t who)
{
    alone->workers[who].asks = true;
}

void alone_end(struct alone *alone, size_t who, uint64_t now_ns)
{
    alone->workers[who].asks = false;
    if (!alone->held || alone->holder != who) {
        return;
    }
    alone->held = alone->granted = false;
    alone->opens_ns = now_ns + ALONE_SLICE_MS * NS_PER_MS;
}

/* The first that asks behind the one who had it last: they take turns. */
static void choose(struct alone *alone)
{
    for (size_t i = 1; i <= alone->count; i++) {
        size_t who = (alone->holder + i) % alone->count;
        if (alone->workers[who].asks) {
            alone->held = true;
            alone->holder = who;
            return;
        }
    }
}

static bool all_told(const struct alone *alone, enum turn turn)
{
    bool told = true;
    for (size_t i = 0; i < alone->count; i++) {
        told &= alone->workers[i].told == turn;
    }
    return told;
}

static enum turn turn_of(const struct alone *alone, size_t who)
{
    if (!alone->held) {
        return TURN_TOGETHER;
    }
    return alone->granted && alone->holder == who ? TURN_ALONE : TURN_REST;
}

bool alone_next(struct alone *alone, uint64_t now_ns, bool at_rest, size_t *who, enum turn *turn)
{
    if (!alone->held && now_ns >= alone->opens_ns && all_told(alone, TURN_TOGETHER)) {
        choose(alone);
    } else if (alone->held && !alone->granted && at_rest && all_told(alone, TURN_REST)) {
        alone->granted = true;
    }
    for (size_t i = 0; i < alone->count; i++) {
        if (alone->workers[i].told != turn_of(alone, i)) {
            alone->workers[i].told = *turn = turn_of(alone, i);
            *who = i;
            return true;
        }
    }
    return false;
}

uint64_t alone_deadline(const struct alone *alone)
{
    bool wanted = false;
    for (size_t i = 0; i < alone->count; i++) {
        wanted |= alone->workers[i].asks;
    }
    return wanted && !alone->held ? alone->opens_ns : UINT64_MAX;
}
