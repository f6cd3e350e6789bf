/* Most words are tokens that their own merges lead to. These tokens are determined once, so such a word takes one
 * look-up. Other short words are merged in arrays on the stack; long ones in a linked list with a heap of the possible
 * merges. Pieces that are whole texts are cut between two letters that no merge joins, most often before each word.
 *
 * Source: the behaviour of the BPE model in tokenizers 0.23. */
#include "tokenizer/bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_tree.h"
#include "base/utf8.h"
#include "tokenizer/spec.h"

enum { SHORT_PIECE = 64, BYTES = 256, CODE_POINTS = 0x110000, SEAM_BITS = 1 << 20 };
#define NO_RANK UINT32_MAX

/* A token's bytes, for finding it. */
struct token_slot {
    uint64_t head;          /* the first eight bytes, or all of them and zeros */
    uint32_t start, length; /* in bpe.bytes; length 0 marks a free slot */
    int32_t id;
    bool whole; /* its merges make this token of these bytes */
};

/* Two neighbours and the rank of their merge. */
struct pair_slot {
    uint64_t pair;
    uint32_t rank; /* NO_RANK marks a free slot */
};

struct bpe {
    struct token_slot *tokens; /* [token_mask + 1] */
    struct pair_slot *pairs;   /* [pair_mask + 1] */
    uint8_t *maybe; /* [pair_mask + 1]: a bit for each pair's hash, because most pairs that are looked up have no merge,
                       and this fits into a nearer cache than the pairs */
    char *bytes;
    int32_t *merged; /* [merge_count]: the token that a rank's merge makes */
    uint32_t token_mask, pair_mask;
    size_t longest; /* of the tokens */
    bool whole_first;
    int32_t byte_ids[BYTES];            /* -1: the byte has no token and is left out of a piece, as `tokenizers` does */
    bool lacks;                         /* there are such bytes */
    uint32_t first_ranks[BYTES][BYTES]; /* of merges of bytes, or of the commonest characters */
    /* Only if pieces start as their characters: */
    int32_t *letters; /* [CODE_POINTS]: the id of a character's token, plus 1; 0: it is written as its bytes */
    uint8_t *common;  /* [CODE_POINTS]: a character's index in first_ranks; 0 for most */
    uint8_t *seams;   /* [SEAM_BITS / 8]: a bit for each two characters, by their hash, at which a merge joins tokens */
};

static uint64_t load_bytes(const char *bytes, size_t length)
{
    uint64_t word = 0;
    if (length >= 8) {
        memcpy(&word, bytes, 8);
        return word;
    }
    for (size_t i = 0; i < length; i++) { word |= (uint64_t)(unsigned char)bytes[i] << 8 * i; }
    return word;
}

static uint64_t mix_hash(uint64_t hash)
{
    hash *= 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

static uint64_t hash_bytes(const char *bytes, size_t length, uint64_t head)
{
    uint64_t hash = mix_hash(head ^ length << 56);
    for (size_t at = 8; at < length; at += 8) { hash = mix_hash(hash ^ load_bytes(bytes + at, length - at)); }
    return hash;
}

/* The slot of these bytes, or the free one where they would be. */
static struct token_slot *find_token(const struct bpe *bpe, const char *bytes, size_t length)
{
    uint64_t head = load_bytes(bytes, length);
    uint32_t at = (uint32_t)hash_bytes(bytes, length, head) & bpe->token_mask;
    for (;; at = (at + 1) & bpe->token_mask) {
        struct token_slot *slot = &bpe->tokens[at];
        if (slot->length == 0) { return slot; }
        if (slot->head == head && slot->length == length &&
            (length <= 8 || memcmp(bpe->bytes + slot->start + 8, bytes + 8, length - 8) == 0)) {
            return slot;
        }
    }
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* The slot of this pair, or the free one where it would be. */
static struct pair_slot *find_pair(const struct bpe *bpe, uint64_t pair, uint64_t hash)
{
    uint32_t at = (uint32_t)hash & bpe->pair_mask;
    while (bpe->pairs[at].rank != NO_RANK && bpe->pairs[at].pair != pair) { at = (at + 1) & bpe->pair_mask; }
    return &bpe->pairs[at];
}

/* The bit is chosen by three more bits of the hash than the slot. */
static uint8_t *maybe_byte(const struct bpe *bpe, uint64_t hash, uint8_t *bit)
{
    *bit = (uint8_t)(1 << (hash >> 61));
    return &bpe->maybe[(uint32_t)hash & bpe->pair_mask];
}

static uint32_t rank_of(const struct bpe *bpe, int32_t left, int32_t right)
{
    uint64_t pair = pair_of(left, right), hash = mix_hash(pair ^ pair >> 29);
    uint8_t bit, *maybe = maybe_byte(bpe, hash, &bit);
    return *maybe & bit ? find_pair(bpe, pair, hash)->rank : NO_RANK;
}

/* Takes the bytes without a token out of a piece's symbols; their neighbours may then merge. Returns how many are left.
 */
static size_t drop_unknown(const struct bpe *bpe, size_t length, int32_t *ids, uint32_t *ranks)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++) {
        if (ids[i] < 0) { continue; }
        if (count > 0) { ranks[count - 1] = rank_of(bpe, ids[count - 1], ids[i]); }
        ids[count++] = ids[i];
    }
    if (count > 0) { ranks[count - 1] = NO_RANK; }
    return count;
}

/* Writes the symbols that a piece begins as, and the rank of the merge of each with the next. Returns their number, at
 * most the piece's bytes. */
static size_t put_symbols(const struct bpe *bpe, const char *piece, size_t length, int32_t *ids, uint32_t *ranks)
{
    const unsigned char *bytes = (const unsigned char *)piece;
    size_t count = 0;
    if (!bpe->letters) {
        for (size_t i = 0; i < length; i++) { ids[i] = bpe->byte_ids[bytes[i]]; }
        for (size_t i = 0; i + 1 < length; i++) { ranks[i] = bpe->first_ranks[bytes[i]][bytes[i + 1]]; }
        ranks[length - 1] = NO_RANK;
        return bpe->lacks ? drop_unknown(bpe, length, ids, ranks) : length;
    }
    uint8_t left = 0, right;
    for (size_t from = 0, at = 0; at < length; left = right) {
        uint32_t code_point = utf8_next(piece, &at);
        bool known = bpe->letters[code_point] != 0;
        right = bpe->common[code_point];
        for (; from < at; from = known ? at : from + 1, count++) {
            ids[count] = known ? bpe->letters[code_point] - 1 : bpe->byte_ids[bytes[from]];
            if (count == 0) { continue; }
            ranks[count - 1] = left && right ? bpe->first_ranks[left][right] : rank_of(bpe, ids[count - 1], ids[count]);
        }
    }
    ranks[count - 1] = NO_RANK;
    return count;
}

/* Merges a short piece; `ids` then holds the ids of its tokens. Returns their number. */
static size_t merge_short(const struct bpe *bpe, const char *piece, size_t length, int32_t *ids)
{
    uint32_t ranks[SHORT_PIECE];
    size_t count = put_symbols(bpe, piece, length, ids, ranks);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++) { best = ranks[i] < ranks[best] ? i : best; }
        if (ranks[best] == NO_RANK) { break; }
        ids[best] = bpe->merged[ranks[best]];
        count--;
        memmove(ids + best + 1, ids + best + 2, (count - best - 1) * sizeof *ids);
        memmove(ranks + best, ranks + best + 1, (count - best - 1) * sizeof *ranks);
        if (best + 1 < count) { ranks[best] = rank_of(bpe, ids[best], ids[best + 1]); }
        if (best > 0) { ranks[best - 1] = rank_of(bpe, ids[best - 1], ids[best]); }
    }
    return count;
}

/* A long piece: the remaining symbols are a list, and all merges that have been possible are in a heap, lowest rank and
 * leftmost first. A merge is skipped if its place has another merge by now. */
struct long_piece {
    uint64_t *heap; /* [2 * length]: rank and place; each merge takes at least one out and puts at most two in */
    size_t heap_count;
    int32_t *ids;
    uint32_t *ranks; /* of the merge of a symbol with the next; NO_RANK also where there is no symbol */
    uint32_t *next, *previous;
};

static void sift_down(struct long_piece *piece, size_t at)
{
    uint64_t *heap = piece->heap, value = heap[at];
    for (size_t child; (child = 2 * at + 1) < piece->heap_count; at = child) {
        child += child + 1 < piece->heap_count && heap[child + 1] < heap[child];
        if (value <= heap[child]) { break; }
        heap[at] = heap[child];
    }
    heap[at] = value;
}

static uint64_t heap_pop(struct long_piece *piece)
{
    uint64_t top = piece->heap[0];
    piece->heap[0] = piece->heap[--piece->heap_count];
    sift_down(piece, 0);
    return top;
}

static void set_rank(struct long_piece *piece, uint32_t at, uint32_t rank)
{
    piece->ranks[at] = rank;
    if (rank == NO_RANK) { return; }
    uint64_t value = (uint64_t)rank << 32 | at;
    size_t place = piece->heap_count++;
    for (size_t parent; place > 0 && piece->heap[parent = (place - 1) / 2] > value; place = parent) {
        piece->heap[place] = piece->heap[parent];
    }
    piece->heap[place] = value;
}

static void merge_long(const struct bpe *bpe, struct long_piece *piece, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        piece->next[i] = i + 1;
        piece->previous[i] = i - 1; /* the first one's is not used */
        if (piece->ranks[i] != NO_RANK) { piece->heap[piece->heap_count++] = (uint64_t)piece->ranks[i] << 32 | i; }
    }
    for (size_t i = piece->heap_count / 2; i-- > 0;) { sift_down(piece, i); }
    while (piece->heap_count > 0) {
        uint64_t top = heap_pop(piece);
        uint32_t at = (uint32_t)top, gone = piece->next[at];
        if (piece->ranks[at] != top >> 32) { continue; }
        uint32_t behind = piece->next[gone];
        piece->ids[at] = bpe->merged[top >> 32];
        piece->ranks[gone] = NO_RANK;
        piece->next[at] = behind;
        if (behind < count) { piece->previous[behind] = at; }
        set_rank(piece, at, behind < count ? rank_of(bpe, piece->ids[at], piece->ids[behind]) : NO_RANK);
        if (at > 0) {
            uint32_t before = piece->previous[at];
            set_rank(piece, before, rank_of(bpe, piece->ids[before], piece->ids[at]));
        }
    }
}

/* The length of the symbol at a place of a piece, as put_symbols makes them. */
static size_t symbol_bytes(const struct bpe *bpe, const char *piece, size_t at)
{
    size_t end = at;
    if (!bpe->letters || ((unsigned char)piece[at] & 0xC0) == 0x80) { return 1; }
    return bpe->letters[utf8_next(piece, &end)] != 0 ? end - at : 1;
}

static bool encode_long(const struct bpe *bpe, const char *bytes, size_t length, struct id_sink *sink)
{
    char *memory = length < UINT32_MAX ? malloc(length * (2 * sizeof(uint64_t) + 4 * sizeof(uint32_t))) : NULL;
    if (!memory) { return false; }
    struct long_piece piece = {.heap = (uint64_t *)memory};
    piece.ids = (int32_t *)(piece.heap + 2 * length);
    piece.ranks = (uint32_t *)(piece.ids + length);
    piece.next = piece.ranks + length;
    piece.previous = piece.next + length;
    uint32_t count = (uint32_t)put_symbols(bpe, bytes, length, piece.ids, piece.ranks);
    merge_long(bpe, &piece, count);
    size_t from = 0, until = 0;
    for (uint32_t at = 0; at < count; at = piece.next[at], from = until) {
        for (uint32_t i = at; i < piece.next[at] && sink->placing; i++) { until += symbol_bytes(bpe, bytes, until); }
        id_sink_put(sink, piece.ids[at], bytes + from, until - from);
    }
    free(memory);
    return true;
}

/* Appends the id of a piece that is a token by its merges or, with `any`, regardless of them. False: it is none. */
static bool put_whole(const struct bpe *bpe, const char *piece, size_t length, bool any, struct id_sink *sink)
{
    if (length > bpe->longest) { return false; }
    const struct token_slot *slot = find_token(bpe, piece, length);
    bool whole = slot->whole || (any && slot->length > 0);
    if (whole) { id_sink_put(sink, slot->id, piece, length); }
    return whole;
}

static bool merge_piece(const struct bpe *bpe, const char *piece, size_t length, struct id_sink *sink)
{
    if (length > SHORT_PIECE || sink->placing) { return encode_long(bpe, piece, length, sink); }
    int32_t ids[SHORT_PIECE];
    size_t count = merge_short(bpe, piece, length, ids);
    for (size_t i = 0; i < count; i++) { id_sink_put(sink, ids[i], NULL, 0); }
    return true;
}

static uint8_t *seam_byte(const struct bpe *bpe, uint32_t left, uint32_t right, uint8_t *bit)
{
    uint32_t hash = (uint32_t)mix_hash((uint64_t)left << 32 | right) % SEAM_BITS;
    *bit = (uint8_t)(1 << hash % 8);
    return &bpe->seams[hash / 8];
}

/* The end of the part of a piece that begins at `at`: no merge crosses it. Nothing is cut next to characters that are
 * written as bytes. */
static size_t part_end(const struct bpe *bpe, const char *piece, size_t length, size_t at)
{
    uint32_t left = utf8_next(piece, &at);
    while (at < length) {
        size_t here = at;
        uint32_t right = utf8_next(piece, &at);
        uint8_t bit, *seam = seam_byte(bpe, left, right, &bit);
        if (!(*seam & bit) && bpe->letters[left] && bpe->letters[right]) { return here; }
        left = right;
    }
    return length;
}

bool bpe_encode(const struct bpe *bpe, const char *piece, size_t length, struct id_sink *sink)
{
    if (put_whole(bpe, piece, length, bpe->whole_first, sink)) { return true; }
    if (!bpe->letters) { return merge_piece(bpe, piece, length, sink); }
    for (size_t at = 0, end; at < length && !id_sink_full(sink); at = end) {
        end = part_end(bpe, piece, length, at);
        if (put_whole(bpe, piece + at, end - at, false, sink)) { continue; }
        if (!merge_piece(bpe, piece + at, end - at, sink)) { return false; }
    }
    return true;
}

/* Building. */

/* A byte that is a visible character of Latin-1 is written as it; the others, in their order, are written as the
 * characters from U+0100 on: 00 to 20, 7F to A0, and AD. */
int bpe_byte(uint32_t code_point)
{
    if (code_point < BYTES) {
        bool visible = (code_point >= '!' && code_point <= '~') || (code_point >= 0xA1 && code_point != 0xAD);
        return visible ? (int)code_point : -1;
    }
    uint32_t other = code_point - BYTES;
    return other < 33 ? (int)other : other < 67 ? (int)other - 33 + 0x7F : other == 67 ? 0xAD : -1;
}

/* Writes the bytes that a token stands for and returns their number; 0 when it is not written in the alphabet. */
static size_t decode_token(const struct bpe *bpe, const char *text, size_t length, char *to)
{
    size_t count = 0;
    if (bpe->letters) {
        memcpy(to, text, length);
        return length;
    }
    for (size_t at = 0; at < length;) {
        int byte = bpe_byte(utf8_next(text, &at));
        if (byte < 0) { return 0; }
        to[count++] = (char)byte;
    }
    return count;
}

/* The least power of two that leaves half of the places free, less one. It fits in 32 bits because ids do. */
static uint32_t mask_for(size_t count)
{
    uint32_t places = 16;
    while (places < 2 * count) { places *= 2; }
    return places - 1;
}

static enum status add_tokens(struct bpe *bpe, const struct trie_key *tokens, size_t count, struct err *err)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        char *bytes = bpe->bytes + used;
        size_t length = decode_token(bpe, tokens[i].bytes, tokens[i].length, bytes), first = 0;
        if (length == 0) { continue; }
        *find_token(bpe, bytes, length) =
            (struct token_slot){load_bytes(bytes, length), (uint32_t)used, (uint32_t)length, tokens[i].id, false};
        if (bpe->letters) {
            uint32_t letter = utf8_next(bytes, &first);
            if (first == length) { bpe->letters[letter] = tokens[i].id + 1; }
        }
        if (length > bpe->longest) { bpe->longest = length; }
        used += length;
    }
    for (unsigned int i = 0; i < BYTES; i++) {
        char name[8] = {(char)i};
        int length = bpe->letters ? snprintf(name, sizeof name, "<0x%02X>", i) : 1;
        const struct token_slot *slot = find_token(bpe, name, (size_t)length);
        bool known = slot->length > 0;
        if (!known && bpe->letters) {
            return err_set(err, STATUS_UNSUPPORTED, "there is no token for the byte 0x%02X", i);
        }
        bpe->byte_ids[i] = known ? slot->id : -1;
        bpe->lacks = bpe->lacks || !known;
    }
    return STATUS_OK;
}

/* The ids of a merge's two tokens and of what they make, or -1. */
static void merge_ids(const struct bpe *bpe, const struct bpe_merge *merge, char *scratch, int32_t ids[3])
{
    size_t left = decode_token(bpe, merge->left, merge->left_length, scratch);
    size_t right = decode_token(bpe, merge->right, merge->right_length, scratch + left);
    const char *parts[] = {scratch, scratch + left, scratch};
    size_t lengths[] = {left, right, left + right};
    for (int i = 0; i < 3; i++) {
        bool there = left > 0 && right > 0;
        const struct token_slot *slot = there ? find_token(bpe, parts[i], lengths[i]) : NULL;
        ids[i] = slot && slot->length > 0 ? slot->id : -1;
    }
}

/* Notes the two characters at which a merge joins its tokens. */
static void add_seam(struct bpe *bpe, const struct bpe_merge *merge)
{
    size_t last = merge->left_length - 1, first = 0;
    while (((unsigned char)merge->left[last] & 0xC0) == 0x80) { last--; }
    uint32_t left = utf8_next(merge->left, &last), right = utf8_next(merge->right, &first);
    uint8_t bit, *seam = seam_byte(bpe, left, right, &bit);
    *seam |= bit;
}

/* The commonest characters are those that the first merges begin with; gives them indices from 1 on, and their ids. */
static void find_common(struct bpe *bpe, const struct bpe_merge *merges, size_t count, int32_t ids[BYTES])
{
    for (size_t i = 0, places = 1; i < count && places < BYTES; i++) {
        size_t first = 0;
        uint32_t letter = utf8_next(merges[i].left, &first);
        if (bpe->common[letter] || !bpe->letters[letter]) { continue; }
        ids[places] = bpe->letters[letter] - 1;
        bpe->common[letter] = (uint8_t)places++;
    }
}

static enum status add_merges(struct bpe *bpe, const struct bpe_merge *merges, size_t count, char *scratch,
                              struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        int32_t ids[3];
        merge_ids(bpe, &merges[i], scratch, ids);
        if (ids[0] < 0 || ids[1] < 0 || ids[2] < 0) {
            return err_set(err, STATUS_BAD_INPUT, "merge %zu, \"%.*s %.*s\", has a token that the vocabulary lacks", i,
                           (int)merges[i].left_length, merges[i].left, (int)merges[i].right_length, merges[i].right);
        }
        bpe->merged[i] = ids[2];
        if (bpe->letters) { add_seam(bpe, &merges[i]); }
        uint64_t pair = pair_of(ids[0], ids[1]), hash = mix_hash(pair ^ pair >> 29);
        *find_pair(bpe, pair, hash) =
            (struct pair_slot){pair, (uint32_t)i}; /* of two that are the same, the last counts */
        uint8_t bit, *maybe = maybe_byte(bpe, hash, &bit);
        *maybe |= bit;
    }
    int32_t firsts[BYTES];
    memcpy(firsts, bpe->byte_ids, sizeof firsts);
    if (bpe->letters) { find_common(bpe, merges, count, firsts); }
    for (int left = 0; left < BYTES; left++) {
        for (int right = 0; right < BYTES; right++) {
            bpe->first_ranks[left][right] = rank_of(bpe, firsts[left], firsts[right]);
        }
    }
    return STATUS_OK;
}

/* Finds the tokens that their own bytes are merged to. */
static enum status mark_whole(struct bpe *bpe, struct err *err)
{
    for (uint32_t i = 0; i <= bpe->token_mask; i++) {
        struct token_slot *slot = &bpe->tokens[i];
        int32_t id;
        struct id_sink sink = {.ids = &id, .room = 1};
        if (slot->length == 0) { continue; }
        if (!merge_piece(bpe, bpe->bytes + slot->start, slot->length, &sink)) {
            return err_set(err, STATUS_NO_MEMORY, "no memory to merge a token of %u bytes", slot->length);
        }
        slot->whole = sink.count == 1 && id == slot->id;
    }
    return STATUS_OK;
}

static enum status build_tables(struct bpe *bpe, const struct trie_key *tokens, size_t token_count,
                                const struct bpe_merge *merges, size_t merge_count, bool by_letters, struct err *err)
{
    size_t longest_merge = 0, bytes = 0;
    for (size_t i = 0; i < token_count; i++) { bytes += tokens[i].length; }
    for (size_t i = 0; i < merge_count; i++) {
        size_t length = merges[i].left_length + merges[i].right_length;
        longest_merge = length > longest_merge ? length : longest_merge;
    }
    bpe->token_mask = mask_for(token_count);
    bpe->pair_mask = mask_for(merge_count);
    bpe->tokens = calloc((size_t)bpe->token_mask + 1, sizeof *bpe->tokens);
    bpe->pairs = calloc((size_t)bpe->pair_mask + 1, sizeof *bpe->pairs);
    bpe->maybe = calloc((size_t)bpe->pair_mask + 1, 1);
    bpe->merged = calloc(merge_count + 1, sizeof *bpe->merged);
    bpe->bytes = malloc(bytes + longest_merge + 1); /* the merges' tokens are assembled after those of the vocabulary */
    if (by_letters) {
        bpe->letters = calloc(CODE_POINTS, sizeof *bpe->letters);
        bpe->common = calloc(CODE_POINTS, sizeof *bpe->common);
        bpe->seams = calloc(SEAM_BITS / 8, 1);
    }
    if (bytes > UINT32_MAX || !bpe->tokens || !bpe->pairs || !bpe->maybe || !bpe->merged || !bpe->bytes ||
        (by_letters && (!bpe->letters || !bpe->common || !bpe->seams))) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for %zu tokens and %zu merges", token_count, merge_count);
    }
    for (uint32_t i = 0; i <= bpe->pair_mask; i++) { bpe->pairs[i].rank = NO_RANK; }
    TRY(add_tokens(bpe, tokens, token_count, err));
    TRY(add_merges(bpe, merges, merge_count, bpe->bytes + bytes, err));
    return mark_whole(bpe, err);
}

enum status bpe_build(const struct trie_key *tokens, size_t token_count, const struct bpe_merge *merges,
                      size_t merge_count, bool whole_first, bool by_letters, struct bpe **out, struct err *err)
{
    struct bpe *bpe = calloc(1, sizeof *bpe);
    *out = NULL;
    if (!bpe) { return err_set(err, STATUS_NO_MEMORY, "no memory for a BPE model"); }
    bpe->whole_first = whole_first;
    enum status status = build_tables(bpe, tokens, token_count, merges, merge_count, by_letters, err);
    if (status == STATUS_OK) {
        *out = bpe;
    } else {
        bpe_close(bpe);
    }
    return status;
}

int bpe_missing_byte(const struct bpe *bpe)
{
    int byte = 0;
    while (byte < BYTES && bpe->byte_ids[byte] >= 0) { byte++; }
    return byte < BYTES ? byte : -1;
}

void bpe_close(struct bpe *bpe)
{
    if (!bpe) { return; }
    free(bpe->tokens);
    free(bpe->pairs);
    free(bpe->maybe);
    free(bpe->merged);
    free(bpe->bytes);
    free(bpe->letters);
    free(bpe->common);
    free(bpe->seams);
    free(bpe);
}

/* The part `model` of a tokenizer.json. */

#define MODEL "tokenizer.json: model"

/* Takes a merge written as "a b" or ["a", "b"] apart. Errors: STATUS_BAD_INPUT. */
static enum status split_merge(const cJSON *merge, const char *parts[2], size_t lengths[2], struct err *err)
{
    const cJSON *left = cJSON_GetArrayItem(merge, 0), *right = cJSON_GetArrayItem(merge, 1);
    const char *blank = cJSON_IsString(merge) ? strchr(merge->valuestring, ' ') : NULL;
    parts[0] = parts[1] = "";
    if (blank) {
        parts[0] = merge->valuestring;
        parts[1] = blank + 1;
    } else if (cJSON_GetArraySize(merge) == 2 && cJSON_IsString(left) && cJSON_IsString(right)) {
        parts[0] = left->valuestring;
        parts[1] = right->valuestring;
    }
    lengths[0] = blank ? (size_t)(blank - parts[0]) : strlen(parts[0]);
    lengths[1] = strlen(parts[1]);
    if (lengths[0] > 0 && lengths[1] > 0 && !(blank && strchr(parts[1], ' '))) { return STATUS_OK; }
    return err_set(err, STATUS_BAD_INPUT, MODEL ".merges: each must be two tokens");
}

static enum status read_merges(const cJSON *merges, struct tokenizer_spec *spec, struct err *err)
{
    const char *parts[2];
    size_t lengths[2], count = 0, bytes = 0;
    const cJSON *child;
    if (!cJSON_IsArray(merges)) { return err_set(err, STATUS_BAD_INPUT, MODEL ".merges must be an array"); }
    cJSON_ArrayForEach(child, merges)
    {
        TRY(split_merge(child, parts, lengths, err));
        bytes += lengths[0] + lengths[1];
        count++;
    }
    spec->merges = calloc(count + 1, sizeof *spec->merges);
    char *text = spec->merge_text = malloc(bytes + 1);
    if (!spec->merges || !text) { return err_set(err, STATUS_NO_MEMORY, MODEL ": no memory for %zu merges", count); }
    cJSON_ArrayForEach(child, merges)
    {
        TRY(split_merge(child, parts, lengths, err));
        char *right = memcpy(text + lengths[0], parts[1], lengths[1]);
        spec->merges[spec->merge_count++] =
            (struct bpe_merge){memcpy(text, parts[0], lengths[0]), right, lengths[0], lengths[1]};
        text = right + lengths[1];
    }
    return STATUS_OK;
}

/* With an unk_token the vocabulary must have all bytes; so it never stands for anything. */
static enum status read_bpe(const cJSON *part, struct tokenizer_spec *spec, struct err *err)
{
    static const char *const known[] = {"type",          "unk_token", "fuse_unk", "byte_fallback",
                                        "ignore_merges", "vocab",     "merges",   NULL};
    static const char *const empty[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix", NULL};
    TRY(json_only(part, MODEL, known, empty, err));
    spec->drops_bytes = !json_field(part, "unk_token");
    TRY(json_bool(part, MODEL, "ignore_merges", &spec->ignore_merges, err));
    TRY(json_bool(part, MODEL, "byte_fallback", &spec->byte_fallback, err));
    TRY(tokenizer_json_vocabulary(json_field(part, "vocab"), spec, err));
    return read_merges(json_field(part, "merges"), spec, err);
}

static enum status build_bpe(struct tokenizer *tokenizer, struct tokenizer_spec *spec, struct err *err)
{
    struct trie_key *keys = tokenizer_keys(spec);
    if (!keys) { return err_set(err, STATUS_NO_MEMORY, "no memory for %zu tokens", spec->vocabulary_count); }
    enum status status = bpe_build(keys, spec->vocabulary_count, spec->merges, spec->merge_count, spec->ignore_merges,
                                   !pipeline_byte_level(&tokenizer->pipeline), &tokenizer->bpe, err);
    free(keys);
    int missing = status == STATUS_OK ? bpe_missing_byte(tokenizer->bpe) : -1;
    if (missing >= 0 && !spec->drops_bytes) {
        status = err_set(err, STATUS_UNSUPPORTED, "there is no token for the byte 0x%02X", (unsigned)missing);
    }
    return status == STATUS_OK ? STATUS_OK : err_prefix(err, "%s: model", spec->file);
}

static bool encode_piece(const struct tokenizer *tokenizer, struct piece piece, struct buffer *scratch,
                         struct id_sink *sink)
{
    (void)scratch;
    return bpe_encode(tokenizer->bpe, piece.bytes, piece.length, sink);
}

const struct tokenizer_model tokenizer_bpe = {
    .type = "BPE", .read = read_bpe, .build = build_bpe, .encode = encode_piece};
