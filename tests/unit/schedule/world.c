/* Chance, time and names of the world. */
#include "world.h"

struct world world;

uint32_t chance(uint32_t below)
{
    world.random = world.random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((world.random >> 33) % below);
}

bool happens(uint32_t per_mille)
{
    return world.faults.on && per_mille > 0 && chance(1000) < per_mille;
}

uint64_t some_time(void)
{
    uint64_t most = chance(10) == 0 ? 30 * NS_PER_MS : 2 * NS_PER_MS;
    return 1000 + chance((uint32_t)most);
}

uint64_t used_bytes(void)
{
    uint64_t bytes = world.others_bytes;
    for (int i = 0; i < world.added; i++) { bytes += world.items[i].place == GONE ? 0 : ENTRY_TAKES; }
    for (int i = 0; i < world.kept_count; i++) { bytes += world.kept[i].until > world.now ? world.kept[i].bytes : 0; }
    return bytes;
}

void keep(uint64_t bytes)
{
    int i = 0;
    while (world.kept[i].until > world.now) { assert_true(++i < 2 * ITEMS); }
    world.kept[i] = (struct kept){bytes, world.now + TTL_S * NS_PER_S};
    world.kept_count = i < world.kept_count ? world.kept_count : i + 1;
}

uint64_t redis_ms(void)
{
    return world.epoch_ms + world.now / NS_PER_MS;
}

bool is_ahead(uint64_t ms)
{
    return ms > redis_ms() + AHEAD_MS;
}

bool alive(int name)
{
    return name >= 0 && world.alive_until[name] > world.now;
}

int index_of(const struct request *request)
{
    assert_true(request->identity.entry.seq < ENTRIES);
    return world.by_seq[request->identity.entry.seq];
}

struct item *item_of(const struct request *request)
{
    return &world.items[index_of(request)];
}

void give_entry(struct item *item)
{
    uint64_t ms = redis_ms();
    world.last_ms = ms > world.last_ms ? ms : world.last_ms;
    item->entry_ms = world.last_ms;
    item->entry_seq = world.next_seq++;
    assert_true(item->entry_seq < ENTRIES);
    world.by_seq[item->entry_seq] = (int)(item - world.items);
    item->place = IN_STREAM;
    item->read = false;
    item->owner = NOBODY;
}

int process_of(const struct peer *peer)
{
    int number = (int)(peer - world.peers);
    return world.lanes && number == 1 ? 0 : number;
}
