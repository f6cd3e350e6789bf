/* The trie against a plain search through the list of its keys. */
#include "harness.h"

#include <stdlib.h>

#include "tokenizer/trie.h"

enum { KEYS = 700, TEXTS = 20000, MOST_BYTES = 8 };

static struct trie *build(const char *const *words, size_t count)
{
    struct trie_key keys[16];
    struct trie *trie;
    struct err err = {0};
    for (size_t i = 0; i < count; i++) { keys[i] = (struct trie_key){words[i], strlen(words[i]), (int32_t)i}; }
    assert_int_equal(trie_build(keys, count, &trie, &err), STATUS_OK);
    return trie;
}

TEST(finds_the_longest_key)
{
    const char *words[] = {"un", "una", "##aff", "##able", "unaffected"};
    struct trie *trie = build(words, 5);
    size_t matched = 0;
    assert_int_equal(trie_longest(trie, TRIE_ROOT, "unaffable", 9, &matched), 1);
    assert_int_equal(matched, 3);
    assert_int_equal(trie_longest(trie, TRIE_ROOT, "unaffable", 2, &matched), 0);
    assert_int_equal(trie_longest(trie, TRIE_ROOT, "xun", 3, &matched), TRIE_NONE);
    assert_int_equal(trie_longest(trie, TRIE_ROOT, "", 0, &matched), TRIE_NONE);
    int32_t inside = trie_walk(trie, TRIE_ROOT, "##", 2);
    assert_int_equal(trie_longest(trie, inside, "ables", 5, &matched), 3);
    assert_int_equal(matched, 4);
    assert_int_equal(trie_longest(trie, TRIE_NONE, "ables", 5, &matched), TRIE_NONE);
    assert_int_equal(trie_find(trie, "unaff", 5), TRIE_NONE);
    assert_int_equal(trie_find(trie, "unaffected", 10), 4);
    assert_int_equal(trie_find(trie, "", 0), TRIE_NONE);
    trie_close(trie);
}

TEST(an_empty_trie_has_nothing)
{
    struct trie *trie = build(NULL, 0);
    size_t matched;
    assert_int_equal(trie_longest(trie, TRIE_ROOT, "\0\0", 2, &matched), TRIE_NONE);
    assert_int_equal(trie_walk(trie, TRIE_ROOT, "\0", 1), TRIE_NONE);
    trie_close(trie);
}

TEST(refuses_equal_and_empty_keys)
{
    struct trie *trie;
    struct err err;
    struct trie_key twice[] = {{"ab", 2, 0}, {"a", 1, 1}, {"ab", 2, 2}};
    assert_int_equal(trie_build(twice, 3, &trie, &err), STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, "\"ab\" stands twice"));
    struct trie_key empty[] = {{"ab", 2, 0}, {"", 0, 1}};
    assert_int_equal(trie_build(empty, 2, &trie, &err), STATUS_BAD_INPUT);
    assert_null(trie);
}

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 16;
}

/* Bytes from both ends of the range and few in the middle, so that keys share beginnings. */
static size_t random_bytes(uint32_t *seed, char *to)
{
    static const unsigned char alphabet[] = {0x00, 0x01, 'a', 'b', 0xFE, 0xFF};
    size_t length = 1 + next_random(seed) % MOST_BYTES;
    for (size_t i = 0; i < length; i++) { to[i] = (char)alphabet[next_random(seed) % sizeof alphabet]; }
    return length;
}

static bool listed(const struct trie_key *keys, size_t count, const char *bytes, size_t length)
{
    for (size_t i = 0; i < count; i++) {
        if (keys[i].length == length && memcmp(keys[i].bytes, bytes, length) == 0) { return true; }
    }
    return false;
}

static int32_t longest_in_list(const struct trie_key *keys, size_t count, const char *text, size_t length)
{
    int32_t id = TRIE_NONE;
    size_t best = 0;
    for (size_t i = 0; i < count; i++) {
        if (keys[i].length > best && keys[i].length <= length && memcmp(keys[i].bytes, text, keys[i].length) == 0) {
            best = keys[i].length;
            id = keys[i].id;
        }
    }
    return id;
}

TEST(agrees_with_a_list)
{
    static char bytes[KEYS][MOST_BYTES];
    struct trie_key keys[KEYS];
    struct trie *trie;
    struct err err = {0};
    uint32_t seed = 7;
    size_t count = 0;
    while (count < KEYS) {
        size_t length = random_bytes(&seed, bytes[count]);
        if (!listed(keys, count, bytes[count], length)) {
            keys[count] = (struct trie_key){bytes[count], length, (int32_t)count};
            count++;
        }
    }
    assert_int_equal(trie_build(keys, KEYS, &trie, &err), STATUS_OK);
    for (int i = 0; i < TEXTS; i++) {
        char text[MOST_BYTES];
        size_t length = random_bytes(&seed, text), matched = 0;
        int32_t expected = longest_in_list(keys, KEYS, text, length);
        assert_int_equal(trie_longest(trie, TRIE_ROOT, text, length, &matched), expected);
        if (expected != TRIE_NONE) { assert_memory_equal(text, bytes[expected], matched); }
    }
    trie_close(trie);
}
