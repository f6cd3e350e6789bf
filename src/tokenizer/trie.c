/* Source: Aoe, "An efficient digital search algorithm by using a double-array structure" (1989).
 *
 * The builder places the nodes depth-first into the first slots that are free, so that those of one key are near each
 * other: in a large trie the time of a walk depends on the number of cache lines that it touches. */
#include "tokenizer/trie.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_SLOTS = 1 << 27 }; /* the largest number that a base can address */

/* A node that waits for its children: the keys first..last share `depth` bytes. */
struct pending {
    size_t first, last, depth;
    uint32_t node;
};

struct builder {
    struct trie *trie;
    const struct trie_key *keys;
    struct pending *stack;
    size_t waiting;
    size_t first_free;
};

static int compare_keys(const void *a, const void *b)
{
    const struct trie_key *x = a, *y = b;
    size_t common = x->length < y->length ? x->length : y->length;
    int order = common > 0 ? memcmp(x->bytes, y->bytes, common) : 0; /* an empty one may be NULL */
    if (order != 0) { return order; }
    return (x->length > y->length) - (x->length < y->length);
}

static enum status check_keys(const struct trie_key *keys, size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (keys[i].length == 0) { return err_set(err, STATUS_BAD_INPUT, "an empty token"); }
        if (keys[i].id >= TRIE_MAX_ID) {
            return err_set(err, STATUS_BAD_INPUT, "the id %d is above %d", keys[i].id, TRIE_MAX_ID - 1);
        }
        if (i > 0 && compare_keys(&keys[i - 1], &keys[i]) == 0) {
            return err_set(err, STATUS_BAD_INPUT, "the token \"%.*s\" stands twice",
                           keys[i].length < 100 ? (int)keys[i].length : 100, keys[i].bytes);
        }
    }
    return STATUS_OK;
}

static bool grow_units(struct trie *trie, size_t need)
{
    if (need <= trie->count) { return true; }
    size_t count = need + need / 4 + 1024;
    if (count > MOST_SLOTS) { return false; }
    struct trie_slot *slots = realloc(trie->slots, count * sizeof *slots);
    if (!slots) { return false; }
    memset(slots + trie->count, 0, (count - trie->count) * sizeof *slots);
    trie->slots = slots;
    trie->count = count;
    return true;
}

/* Lists the different bytes that follow at `depth`, and the number of keys with each. */
static size_t child_bytes(const struct builder *builder, const struct pending *at, unsigned char *bytes, size_t *ends)
{
    size_t count = 0;
    for (size_t i = at->first; i < at->last; i++) {
        unsigned char byte = (unsigned char)builder->keys[i].bytes[at->depth];
        if (count == 0 || bytes[count - 1] != byte) { bytes[count++] = byte; }
        ends[count - 1] = i + 1;
    }
    return count;
}

/* Finds a base whose slots for all `bytes` are free; 0 when memory ran out (slot 0 is the root, so no base is 0).
 * After a long search the slots passed over are given up: a few holes cost less than looking at them for every node. */
static uint32_t find_base(struct builder *builder, const unsigned char *bytes, size_t count)
{
    struct trie *trie = builder->trie;
    while (builder->first_free < trie->count && trie->slots[builder->first_free].mark) { builder->first_free++; }
    for (size_t slot = builder->first_free;; slot++) {
        if (!grow_units(trie, slot + 512)) { return 0; }
        size_t base = slot - bytes[0], i = 0;
        if (trie->slots[base].taken) { continue; }
        while (i < count && !trie->slots[base + bytes[i]].mark) { i++; }
        if (i < count) { continue; }
        if (slot - builder->first_free > 2048) { builder->first_free = slot; }
        return (uint32_t)base;
    }
}

static bool place_children(struct builder *builder, struct pending at)
{
    unsigned char bytes[256];
    size_t ends[256];
    if (builder->keys[at.first].length == at.depth) {
        builder->trie->slots[at.node].id = (uint32_t)builder->keys[at.first].id + 1;
        at.first++;
    }
    size_t count = child_bytes(builder, &at, bytes, ends);
    if (count == 0) { return true; }
    uint32_t base = find_base(builder, bytes, count);
    if (base == 0) { return false; }
    struct trie_slot *slots = builder->trie->slots;
    slots[at.node].base = base;
    slots[base].taken = 1;
    for (size_t i = count; i-- > 0;) {
        slots[base + bytes[i]].mark = bytes[i] + 1u;
        builder->stack[builder->waiting++] = (struct pending){
            .first = i == 0 ? at.first : ends[i - 1], .last = ends[i], .depth = at.depth + 1, .node = base + bytes[i]};
    }
    return true;
}

static bool place_all(struct builder *builder, size_t keys)
{
    if (!grow_units(builder->trie, 1)) { return false; }
    builder->first_free = 256; /* so that every free slot suits every byte and leaves a base above 0 */
    if (keys == 0) { return true; }
    builder->stack[builder->waiting++] = (struct pending){.first = 0, .last = keys, .depth = 0, .node = TRIE_ROOT};
    while (builder->waiting > 0) {
        if (!place_children(builder, builder->stack[--builder->waiting])) { return false; }
    }
    return true;
}

enum status trie_build(struct trie_key *keys, size_t count, struct trie **out, struct err *err)
{
    *out = NULL;
    if (count > 0) { qsort(keys, count, sizeof *keys, compare_keys); }
    enum status status = check_keys(keys, count, err);
    if (status != STATUS_OK) { return status; }
    size_t nodes = 1; /* at most: the root and one for each byte of each key */
    for (size_t i = 0; i < count; i++) { nodes += keys[i].length; }
    struct builder builder = {.keys = keys};
    builder.trie = calloc(1, sizeof *builder.trie);
    if (nodes < MOST_SLOTS) { builder.stack = calloc(nodes, sizeof *builder.stack); }
    bool placed = builder.trie && builder.stack && place_all(&builder, count);
    free(builder.stack);
    if (!placed) {
        trie_close(builder.trie);
        return err_set(err, STATUS_NO_MEMORY, "no memory for a trie of %zu tokens", count);
    }
    *out = builder.trie;
    return STATUS_OK;
}

void trie_close(struct trie *trie)
{
    if (!trie) { return; }
    free(trie->slots);
    free(trie);
}

int32_t trie_walk(const struct trie *trie, int32_t node, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length && node != TRIE_NONE; i++) { node = trie_child(trie, node, bytes[i]); }
    return node;
}

int32_t trie_longest(const struct trie *trie, int32_t node, const char *bytes, size_t length, size_t *matched)
{
    int32_t id = TRIE_NONE;
    for (size_t i = 0; i < length && node != TRIE_NONE; i++) {
        node = trie_child(trie, node, bytes[i]);
        if (node != TRIE_NONE && trie_id(trie, node) != TRIE_NONE) {
            id = trie_id(trie, node);
            *matched = i + 1;
        }
    }
    return id;
}

int32_t trie_find(const struct trie *trie, const char *bytes, size_t length)
{
    int32_t node = trie_walk(trie, TRIE_ROOT, bytes, length);
    return node == TRIE_NONE || node == TRIE_ROOT ? TRIE_NONE : trie_id(trie, node);
}
