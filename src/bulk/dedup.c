/* Several hash tables that grow one at a time, so that growing never needs twice the memory; each is still large enough
 * for huge pages. With millions of texts each lookup misses the cache, so dedup_expect prefetches. */
#include "bulk/dedup.h"

#include <stdlib.h>

#include "base/system.h"

enum { TABLE_BITS = 5, TABLES = 1 << TABLE_BITS, FIRST_SLOTS = 256, ROW_BITS = 40, CODE_BITS = 5, TAG_BITS = 18 };

/* 64 bits of the hash; 40 of the row, 5 of the code, 18 more of the hash, and a bit that is always set. With the 5 bits
 * that choose the table, 87 bits of the hash identify a text. */
struct slot {
    uint64_t key, value;
};

_Static_assert((int)ROW_CODES <= 1 << CODE_BITS, "every code has room");
_Static_assert(ROW_BITS + CODE_BITS + TAG_BITS + 1 == 64, "all of a value is used");

struct table {
    struct slot *slots; /* [mask + 1] */
    uint32_t mask, count;
};

struct dedup {
    struct table tables[TABLES];
    uint64_t count, most;
};

enum status dedup_open(uint64_t most_rows, struct dedup **out, struct err *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out) { return err_set(err, STATUS_NO_MEMORY, "no memory to find equal texts"); }
    (*out)->most = most_rows;
    return STATUS_OK;
}

static size_t slots_bytes(const struct table *table)
{
    return table->slots ? ((size_t)table->mask + 1) * sizeof *table->slots : 0;
}

void dedup_close(struct dedup *dedup)
{
    for (int i = 0; dedup != NULL && i < TABLES; i++) {
        memory_unmap(dedup->tables[i].slots, slots_bytes(&dedup->tables[i]));
    }
    free(dedup);
}

static uint64_t tag_of(struct hash hash)
{
    return (hash.low >> TABLE_BITS | 1u << TAG_BITS) & ((2u << TAG_BITS) - 1);
}

static uint64_t value_of(struct hash hash, struct dedup_entry entry)
{
    return entry.row | (uint64_t)entry.code << ROW_BITS | tag_of(hash) << (ROW_BITS + CODE_BITS);
}

static struct slot *first_slot(const struct table *table, uint64_t key)
{
    return &table->slots[(uint32_t)key & table->mask];
}

void dedup_expect(const struct dedup *dedup, struct hash hash)
{
    const struct table *table = &dedup->tables[hash.low % TABLES];
    if (table->slots) { __builtin_prefetch(first_slot(table, hash.high)); }
}

/* The slot of a hash, or the empty one where it would go. */
static struct slot *slot_of(const struct table *table, uint64_t key, uint64_t tag)
{
    struct slot *slot = first_slot(table, key);
    while (slot->value != 0 && (slot->key != key || slot->value >> (ROW_BITS + CODE_BITS) != tag)) {
        slot = slot == table->slots + table->mask ? table->slots : slot + 1;
    }
    return slot;
}

struct dedup_entry dedup_find(const struct dedup *dedup, struct hash hash)
{
    const struct table *table = &dedup->tables[hash.low % TABLES];
    struct dedup_entry entry = {.row = DEDUP_NONE};
    if (!table->slots) { return entry; }
    const struct slot *slot = slot_of(table, hash.high, tag_of(hash));
    if (slot->value != 0) {
        entry.row = slot->value & ((1ull << ROW_BITS) - 1);
        entry.code = (enum row_code)(slot->value >> ROW_BITS & ((1u << CODE_BITS) - 1));
    }
    return entry;
}

static bool grow(struct table *table)
{
    uint32_t before = table->slots ? table->mask + 1 : 0;
    uint32_t room = before == 0 ? FIRST_SLOTS : 2 * before;
    struct table bigger = {.slots = memory_map(room * sizeof(struct slot)), .mask = room - 1, .count = table->count};
    if (!bigger.slots) { return false; }
    for (uint32_t i = 0; i < before; i++) {
        if (table->slots[i].value != 0) {
            *slot_of(&bigger, table->slots[i].key, table->slots[i].value >> (ROW_BITS + CODE_BITS)) = table->slots[i];
        }
    }
    memory_unmap(table->slots, slots_bytes(table));
    *table = bigger;
    return true;
}

void dedup_put(struct dedup *dedup, struct hash hash, struct dedup_entry entry)
{
    struct table *table = &dedup->tables[hash.low % TABLES];
    struct slot *slot = table->slots ? slot_of(table, hash.high, tag_of(hash)) : NULL;
    if (!slot || slot->value == 0) {
        if (dedup->count >= dedup->most || entry.row >> ROW_BITS != 0) { return; }
        bool crowded = !table->slots || table->count >= table->mask - table->mask / 8;
        if (crowded && !grow(table)) { return; }
        if (crowded) { slot = slot_of(table, hash.high, tag_of(hash)); }
        table->count++;
        dedup->count++;
    }
    *slot = (struct slot){hash.high, value_of(hash, entry)};
}
