/* Viterbi over the bytes of a piece: the best way to each place, kept from the last place that every way goes through.
 * So a long piece takes little memory, and its ids are written while it is read.
 *
 * Source: Kudo, "Subword regularization" (2018); ties, the price of an unknown character and the order of additions as
 * in tokenizers 0.23. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_tree.h"
#include "tokenizer/spec.h"

#define UNKNOWN_PENALTY 10.0

/* The state of a piece that is a token: most words are tokens that no other way beats. */
enum { PIECE_UNMET, PIECE_WHOLE, PIECE_SPLIT };

/* The data that belongs to the tokenizer's vocabulary; read-only except `met`. */
struct unigram {
    double *scores;       /* [ids]; owned */
    _Atomic uint8_t *met; /* [ids]: PIECE_...; set by the first thread that meets it, all find the same; owned */
    double unknown_score;
    size_t longest; /* token, in bytes; at least a character */
    int32_t unknown;
    int32_t bytes[256]; /* the ids of the bytes of unknown characters; all TRIE_NONE if they are not used */
};

/* The last step of the best way to a place; after the backward walk, the next step of the best way from it. */
struct place {
    double score;
    uint32_t length; /* of the token; 0 if nothing has reached the place */
    int32_t id;
};

struct search {
    const struct tokenizer *tokenizer;
    struct piece piece;
    struct id_sink *sink;
    struct place *places; /* [0] is that of `from` */
    size_t from;          /* all text before it is settled */
    size_t reached;       /* the last place at which a token ends */
    size_t unknown_from;  /* unknown characters wait from here to `unknown_until` */
    size_t unknown_until;
};

/* Neighbouring unknown characters are one token: itself if the vocabulary has it, else its bytes, else unknown. */
static void put_unknown(struct search *search)
{
    const struct tokenizer *tokenizer = search->tokenizer;
    const struct unigram *model = tokenizer->unigram;
    const char *bytes = search->piece.bytes + search->unknown_from;
    size_t length = search->unknown_until - search->unknown_from;
    search->unknown_from = search->unknown_until = 0;
    if (length == 0) { return; }
    int32_t id = trie_find(tokenizer->trie, bytes, length);
    bool known = true;
    for (size_t i = 0; id == TRIE_NONE && known && i < length; i++) {
        known = model->bytes[(unsigned char)bytes[i]] != TRIE_NONE;
    }
    if (id != TRIE_NONE || !known) {
        id_sink_put_text(search->sink, known ? id : model->unknown, bytes, length);
        return;
    }
    for (size_t i = 0; i < length && !id_sink_full(search->sink); i++) {
        id_sink_put(search->sink, model->bytes[(unsigned char)bytes[i]], bytes, length);
    }
}

/* Appends the ids of the best way from search->from to `until`. */
static void settle_pieces(struct search *search, size_t until)
{
    struct place *places = search->places;
    struct place next = {0};
    size_t last = until - search->from;
    for (size_t at = last;; at -= next.length) {
        struct place place = places[at];
        places[at].length = next.length;
        places[at].id = next.id;
        if (at == 0) { break; }
        next = place;
    }
    for (size_t at = 0; at < last && !id_sink_full(search->sink); at += places[at].length) {
        if (places[at].id == search->tokenizer->unigram->unknown) {
            if (search->unknown_until == 0) { search->unknown_from = search->from + at; }
            search->unknown_until = search->from + at + places[at].length;
        } else {
            put_unknown(search);
            id_sink_put(search->sink, places[at].id, search->piece.bytes + search->from + at, places[at].length);
        }
    }
    places[0].score = places[last].score;
    search->from = search->reached = until;
}

/* Offers a way to the place `length` bytes after `here`; `furthest` is the last place that any way leads to. */
static inline void offer_piece(struct place *here, struct place **furthest, size_t length, int32_t id, double score)
{
    struct place *place = here + length;
    while (*furthest < place) { (++*furthest)->length = 0; }
    if (place->length == 0 || score > place->score) { *place = (struct place){score, (uint32_t)length, id}; }
}

static size_t character_bytes(char first)
{
    unsigned char byte = (unsigned char)first;
    return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/* Makes room for the places up to `last`, counted from search->from. */
static bool make_room(struct search *search, size_t last, struct buffer *scratch)
{
    size_t need = (last + 1) * sizeof(struct place);
    if (scratch->capacity >= need) { return true; }
    scratch->length = scratch->capacity;
    if (!buffer_reserve(scratch, need - scratch->length)) { return false; }
    search->places = (struct place *)(void *)scratch->data;
    return true;
}

/* Encodes a piece by the lattice of all ways. */
static bool encode_piece(const struct tokenizer *tokenizer, struct piece piece, struct buffer *scratch,
                         struct id_sink *sink)
{
    const struct unigram *model = tokenizer->unigram;
    const struct trie *trie = tokenizer->trie;
    const double *scores = model->scores;
    struct search search = {tokenizer, piece, sink, (struct place *)(void *)scratch->data, 0, 0, 0, 0};
    if (!make_room(&search, 0, scratch)) { return false; }
    search.places[0] = (struct place){0};
    for (size_t at = 0, character; at < piece.length; at += character) {
        character = character_bytes(piece.bytes[at]);
        if (at == search.reached && at > 0) {
            settle_pieces(&search, at);
            if (id_sink_full(sink)) { return true; }
        }
        size_t most = piece.length - at < model->longest ? piece.length - at : model->longest;
        if (!make_room(&search, at - search.from + most, scratch)) { return false; }
        struct place *here = &search.places[at - search.from];
        struct place *furthest = &search.places[search.reached - search.from];
        bool known = false;
        struct trie_slot slot = trie->slots[TRIE_ROOT];
        for (size_t i = 0; i < most; i++) {
            unsigned char byte = (unsigned char)piece.bytes[at + i];
            slot = trie->slots[slot.base + byte];
            if (slot.mark != byte + 1u) { break; }
            int32_t id = (int32_t)slot.id - 1;
            if (id == TRIE_NONE) { continue; }
            offer_piece(here, &furthest, i + 1, id, scores[id] + here->score);
            known |= i + 1 == character;
        }
        if (!known) { offer_piece(here, &furthest, character, model->unknown, model->unknown_score + here->score); }
        search.reached = search.from + (size_t)(furthest - search.places);
    }
    settle_pieces(&search, piece.length);
    put_unknown(&search);
    return true;
}

static bool encode_unigram(const struct tokenizer *tokenizer, struct piece piece, struct buffer *scratch,
                           struct id_sink *sink)
{
    int32_t id = trie_find(tokenizer->trie, piece.bytes, piece.length);
    _Atomic uint8_t *met = id == TRIE_NONE ? NULL : &tokenizer->unigram->met[id];
    uint8_t known = met ? atomic_load_explicit(met, memory_order_relaxed) : PIECE_SPLIT;
    if (known == PIECE_WHOLE) {
        id_sink_put(sink, id, piece.bytes, piece.length);
        return true;
    }
    size_t before = sink->count;
    if (!encode_piece(tokenizer, piece, scratch, sink)) { return false; }
    if (known == PIECE_UNMET && sink->count <= sink->room) {
        bool whole = sink->count == before + 1 && sink->ids[before] == id;
        atomic_store_explicit(met, whole ? PIECE_WHOLE : PIECE_SPLIT, memory_order_relaxed);
    }
    return true;
}

static enum status build_unigram(struct tokenizer *tokenizer, struct tokenizer_spec *spec, struct err *err)
{
    struct unigram *model = tokenizer->unigram = calloc(1, sizeof *model);
    double least = INFINITY;
    if (!model) { return err_set(err, STATUS_NO_MEMORY, "%s: no memory for a model", spec->file); }
    TRY(tokenizer_build_trie(tokenizer, spec, err));
    model->scores = calloc(tokenizer->vocabulary, sizeof *model->scores);
    model->met = calloc(tokenizer->vocabulary, sizeof *model->met);
    if (!model->scores || !model->met) {
        return err_set(err, STATUS_NO_MEMORY, "%s: no memory for scores", spec->file);
    }
    model->longest = 4; /* an unknown character */
    for (size_t i = 0; i < spec->vocabulary_count; i++) {
        const struct vocabulary_entry *entry = &spec->vocabulary[i];
        size_t length = strlen(entry->token);
        model->scores[entry->id] = entry->score;
        if (entry->score < least) { least = entry->score; }
        if (length > model->longest) { model->longest = length; }
    }
    model->unknown_score = least - UNKNOWN_PENALTY;
    model->unknown = spec->unknown_id;
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned int)byte);
        model->bytes[byte] = spec->byte_fallback ? trie_find(tokenizer->trie, name, strlen(name)) : TRIE_NONE;
    }
    return STATUS_OK;
}

void unigram_close(struct unigram *unigram)
{
    if (!unigram) { return; }
    free(unigram->scores);
    free(unigram->met);
    free(unigram);
}

/* The package reads a number as its digits, in one integer, divided by a power of ten: with 16 or 17 digits that is
 * often the neighbour of the number that was written, and such bits decide between ways of nearly equal scores. The
 * digits in the file are the fewest that reproduce the number. */
static double score_as_read(double score)
{
    char text[32];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*e", digits - 1, fabs(score));
        if (strtod(text, NULL) != fabs(score)) { continue; }
        if (digits == 15) { return score; /* both are exact */ }
        char *end, power[16];
        uint64_t number = (uint64_t)(text[0] - '0');
        for (end = text + 2; *end != 'e'; end++) { number = number * 10 + (uint64_t)(*end - '0'); }
        long exponent = strtol(end + 1, NULL, 10) - (digits - 1);
        if (exponent > 0 || exponent < -308) { return score; }
        snprintf(power, sizeof power, "1e%ld", -exponent);
        return copysign((double)number / strtod(power, NULL), score);
    }
    return score;
}

/* One entry is [token, score]; its id is its place. */
static enum status read_entry(const cJSON *entry, int32_t id, struct tokenizer_spec *spec, struct err *err)
{
    const cJSON *token = cJSON_GetArrayItem(entry, 0), *score = cJSON_GetArrayItem(entry, 1);
    if (cJSON_GetArraySize(entry) != 2 || !cJSON_IsString(token) || !cJSON_IsNumber(score) ||
        !isfinite(score->valuedouble)) {
        return err_set(err, STATUS_BAD_INPUT, "%s: model.vocab: entry %d must be [token, score]", spec->file, id);
    }
    return tokenizer_put_token(spec, token->valuestring, id, score_as_read(score->valuedouble), err);
}

static enum status read_unigram(const cJSON *part, struct tokenizer_spec *spec, struct err *err)
{
    static const char *const known[] = {"type", "unk_id", "vocab", "byte_fallback", NULL};
    const char *path = "tokenizer.json: model";
    const cJSON *vocabulary = json_field(part, "vocab"), *entry;
    TRY(json_only(part, path, known, NULL, err));
    TRY(json_bool(part, path, "byte_fallback", &spec->byte_fallback, err));
    if (!cJSON_IsArray(vocabulary)) { return err_set(err, STATUS_BAD_INPUT, "%s.vocab must be an array", path); }
    spec->vocabulary = calloc((size_t)cJSON_GetArraySize(vocabulary) + 1, sizeof *spec->vocabulary);
    if (!spec->vocabulary) { return err_set(err, STATUS_NO_MEMORY, "%s.vocab: no memory", path); }
    int32_t id = 0;
    cJSON_ArrayForEach(entry, vocabulary)
    {
        TRY(read_entry(entry, id++, spec, err));
    }
    const cJSON *value;
    TRY(fields_need(part, path, "unk_id", &value, err));
    TRY(fields_id(value, "tokenizer.json: model.unk_id", &spec->unknown_id, err));
    if (spec->unknown_id >= id) {
        return err_set(err, STATUS_BAD_INPUT, "%s.unk_id %d is not in the vocabulary", path, spec->unknown_id);
    }
    return STATUS_OK;
}

const struct tokenizer_model tokenizer_unigram = {
    .type = "Unigram", .read = read_unigram, .build = build_unigram, .encode = encode_unigram};
