/* What the lanes of a block wait with: barriers, and what a warp does together; and the copies that each waits for by
 * itself. The lane that comes last to a meeting works out what all of them get. */
#include "simt_private.h"

using namespace simt;

const struct simt_place &simt_self()
{
    return running->place;
}

static void lane_wait(struct lane *lane, enum lane_state state, const struct simt_site &site, uint32_t mask)
{
    lane->state = state;
    lane->site = site;
    lane->mask = mask;
    lane_pause(lane);
}

void simt_meet(struct simt_site site, uint32_t mask, simt_combine *combine, void *record)
{
    struct lane *lane = running;
    uint32_t number = lane_number(lane), first = number / WARP * WARP;
    if ((mask >> number % WARP & 1) == 0)
        simt_complain("lane %u calls %s (%s:%d) with a mask that leaves it out (%08x)", (unsigned)number, site.word,
                      site.file, site.line, (unsigned)mask);
    lane->record = record;
    lane->state = LANE_AT_MEETING;
    lane->site = site;
    lane->mask = mask;
    uint32_t *here = &machine->meeting[first / WARP];
    *here |= (uint32_t)1 << number % WARP;
    if ((mask & ~*here) != 0)
        return lane_pause(lane);
    void *records[WARP] = {};
    for (uint32_t k = 0; k < WARP; k++) {
        if ((mask >> k & 1) == 0)
            continue;
        const struct lane *other = machine->lanes[first + k].get();
        if (other->mask != mask || !same_site(other->site, site))
            return lane_pause(lane);
        records[k] = other->record;
    }
    if (combine == nullptr) { /* __syncwarp, the one that orders memory */
        if (machine->watching)
            race_warp(first, mask);
    } else {
        bool watching = machine->watching;
        machine->watching = false; /* what it reads is the lanes' own */
        combine(records, mask);
        machine->watching = watching;
    }
    for (uint32_t k = 0; k < WARP; k++)
        if (mask >> k & 1)
            set_ready(first + k);
    lane_pause(lane);
}

int simt_barrier(struct simt_site site, enum simt_vote vote, bool mine)
{
    struct lane *lane = running;
    lane->vote = mine;
    lane_wait(lane, LANE_AT_BARRIER, site, 0);
    int count = machine->vote_count;
    if (vote == SIMT_COUNT)
        return count;
    return vote == SIMT_ANY ? count > 0 : count == static_cast<int>(machine->lane_count);
}

/* --- words that meet -----------------------------------------------------------------------------------------------
 */

struct ballot_record {
    bool mine;
    uint32_t all;
};

static void ballot_combine(void *const records[32], uint32_t mask)
{
    uint32_t all = 0;
    for (uint32_t k = 0; k < WARP; k++)
        if (mask >> k & 1)
            all |= (uint32_t) static_cast<struct ballot_record *>(records[k])->mine << k;
    for (uint32_t k = 0; k < WARP; k++)
        if (mask >> k & 1)
            static_cast<struct ballot_record *>(records[k])->all = all;
}

uint32_t simt_ballot(struct simt_site site, uint32_t mask, bool mine)
{
    struct ballot_record record = {mine, 0};
    simt_meet(site, mask, ballot_combine, &record);
    return record.all;
}

struct shuffle_record {
    uint64_t mine, result;
    int from; /* a lane of the warp */
};

static void shuffle_combine(void *const records[32], uint32_t mask)
{
    for (uint32_t k = 0; k < WARP; k++) {
        if ((mask >> k & 1) == 0)
            continue;
        struct shuffle_record *to = static_cast<struct shuffle_record *>(records[k]);
        if ((mask >> to->from & 1) == 0)
            simt_complain("lane %u of a warp shuffles from lane %d, which is not in the mask %08x", (unsigned)k,
                          to->from, (unsigned)mask);
        to->result = static_cast<struct shuffle_record *>(records[to->from])->mine;
    }
}

uint64_t simt_shuffle(struct simt_site site, enum simt_shuffle how, uint32_t mask, uint64_t mine, int other, int width)
{
    int self = static_cast<int>(lane_number(running) % WARP), first = self / width * width;
    int from = first + other % width;
    if (how == SIMT_XOR)
        from = (self ^ other) < first + width ? self ^ other : self;
    else if (how == SIMT_UP)
        from = self - other >= first ? self - other : self;
    else if (how == SIMT_DOWN)
        from = self + other < first + width ? self + other : self;
    struct shuffle_record record = {mine, 0, from};
    simt_meet(site, mask, shuffle_combine, &record);
    return record.result;
}

void simt_copy_async(void *to, const void *from, uint32_t bytes, uint32_t zeros_from)
{
    struct lane *lane = running;
    if (reinterpret_cast<uintptr_t>(to) % bytes != 0 || reinterpret_cast<uintptr_t>(from) % bytes != 0)
        simt_complain("an asynchronous copy of %u bytes is not aligned to them", (unsigned)bytes);
    race_touch(to, bytes, RACE_COPY_BEGINS);
    race_touch(from, zeros_from, RACE_READ);
    lane->copies.push_back({to, from, bytes, zeros_from, lane->copy_group});
}

void simt_copy_commit()
{
    running->copy_group++;
}

void simt_copy_wait(uint32_t groups_left)
{
    struct lane *lane = running;
    std::vector<struct async_copy> later;
    for (const struct async_copy &copy : lane->copies) {
        if (copy.group + groups_left >= lane->copy_group) {
            later.push_back(copy);
            continue;
        }
        race_touch(copy.from, copy.zeros_from, RACE_READ);
        race_touch(copy.to, copy.bytes, RACE_COPY_ENDS);
        memcpy(copy.to, copy.from, copy.zeros_from);
        memset(static_cast<char *>(copy.to) + copy.zeros_from, 0, copy.bytes - copy.zeros_from);
    }
    lane->copies.swap(later);
}
