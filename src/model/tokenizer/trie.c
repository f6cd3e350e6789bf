/* Source: Aoe, "An efficient digital search algorithm by using a double-array structure" (1989).
 *
 * A node's id lies in the slot itself. The builder places the nodes breadth-first and looks for free slots from the
 * first free one on. */
#include "model/tokenizer/trie.h"

#include <stdlib.h>
#include <string.h>

/* A node that waits for its children: the keys first..last share `depth` bytes. */
struct pending {
    size_t first, last, depth;
    int32_t node;
};

struct builder {
    struct trie *trie;
    const struct trie_key *keys;
    struct pending *queue;
    size_t queued;
    size_t first_free;
};

static int compare_keys(const void *a, const void *b)
{
    const struct trie_key *x = a, *y = b;
    size_t common = x->length < y->length ? x->length : y->length;
    int order = memcmp(x->bytes, y->bytes, common);
    if (order != 0) { return order; }
    return (x->length > y->length) - (x->length < y->length);
}

static enum status check_keys(const struct trie_key *keys, size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (keys[i].length == 0) { return err_set(err, STATUS_BAD_INPUT, "an empty token"); }
        if (i > 0 && compare_keys(&keys[i - 1], &keys[i]) == 0) {
            return err_set(err, STATUS_BAD_INPUT, "the token \"%.*s\" stands twice",
                           keys[i].length < 100 ? (int)keys[i].length : 100, keys[i].bytes);
        }
    }
    return STATUS_OK;
}

static bool grow(struct trie *trie, size_t need)
{
    if (need <= trie->count) { return true; }
    size_t count = need + need / 4 + 1024;
    struct trie_slot *slots = realloc(trie->slots, count * sizeof *slots);
    if (!slots) { return false; }
    for (size_t i = trie->count; i < count; i++) {
        slots[i] = (struct trie_slot){.base = 0, .parent = TRIE_NONE, .id = TRIE_NONE};
    }
    trie->slots = slots;
    trie->count = count;
    return true;
}

/* Lists the different bytes that follow at `depth`, and how many keys have each. */
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
static int32_t find_base(struct builder *builder, const unsigned char *bytes, size_t count)
{
    struct trie *trie = builder->trie;
    while (builder->first_free < trie->count && trie->slots[builder->first_free].parent != TRIE_NONE) {
        builder->first_free++;
    }
    for (size_t slot = builder->first_free;; slot++) {
        if (!grow(trie, slot + 512)) { return 0; }
        if (trie->slots[slot].parent != TRIE_NONE) { continue; }
        size_t base = slot - bytes[0], i = 1;
        while (i < count && trie->slots[base + bytes[i]].parent == TRIE_NONE) { i++; }
        if (i < count) { continue; }
        if (slot - builder->first_free > 2048) { builder->first_free = slot; }
        return (int32_t)base;
    }
}

static bool place_children(struct builder *builder, struct pending at)
{
    unsigned char bytes[256];
    size_t ends[256];
    if (builder->keys[at.first].length == at.depth) {
        builder->trie->slots[at.node].id = builder->keys[at.first].id;
        at.first++;
    }
    size_t count = child_bytes(builder, &at, bytes, ends);
    if (count == 0) { return true; }
    int32_t base = find_base(builder, bytes, count);
    if (base == 0) { return false; }
    struct trie_slot *slots = builder->trie->slots;
    slots[at.node].base = base;
    for (size_t i = 0; i < count; i++) {
        int32_t child = base + bytes[i];
        slots[child].parent = at.node;
        builder->queue[builder->queued++] = (struct pending){
            .first = i == 0 ? at.first : ends[i - 1], .last = ends[i], .depth = at.depth + 1, .node = child};
    }
    return true;
}

static bool place_all(struct builder *builder, size_t keys)
{
    if (!grow(builder->trie, 1)) { return false; }
    builder->trie->slots[TRIE_ROOT].parent = TRIE_ROOT;
    builder->first_free = 256; /* so that every free slot suits every byte and leaves a base above 0 */
    if (keys == 0) { return true; }
    builder->queue[builder->queued++] = (struct pending){.first = 0, .last = keys, .depth = 0, .node = TRIE_ROOT};
    for (size_t done = 0; done < builder->queued; done++) {
        if (!place_children(builder, builder->queue[done])) { return false; }
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
    if (nodes < INT32_MAX / 8) { builder.queue = calloc(nodes, sizeof *builder.queue); }
    bool placed = builder.trie && builder.queue && place_all(&builder, count);
    free(builder.queue);
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
        if (node != TRIE_NONE && trie->slots[node].id != TRIE_NONE) {
            id = trie->slots[node].id;
            *matched = i + 1;
        }
    }
    return id;
}

int32_t trie_find(const struct trie *trie, const char *bytes, size_t length)
{
    int32_t node = trie_walk(trie, TRIE_ROOT, bytes, length);
    return node == TRIE_NONE || node == TRIE_ROOT ? TRIE_NONE : trie->slots[node].id;
}
