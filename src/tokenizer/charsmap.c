/* The file's trie is walked once, with care, because nothing in it can be trusted, and kept as a struct trie. Only keys
 * of up to five bytes can match, and of them only those that no other key begins.
 *
 * Source: the behaviour of Precompiled in tokenizers 0.23; Unicode Standard Annex 29 for graphemes; the layout of the
 * trie is that of darts-clone. */
#include "tokenizer/charsmap.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/trie.h"

enum { MAX_CHUNK = 5, TABLE = 0x10000 };
enum { ZWNJ = 0x200C, ZWJ = 0x200D };

/* Flags in the table, besides the class: the character alone is replaced, or it begins a string that may be. */
enum { MAPPED = 64, BEGINS = 128 };

struct replacement {
    uint32_t at, length; /* in `texts` */
};

struct charsmap {
    struct trie *trie; /* key -> index of its replacement; NULL without keys */
    struct replacement *replacements;
    size_t count;
    struct buffer texts; /* the file's replacements, each followed by a NUL */
    size_t growth[2];    /* in characters, in bytes */
    uint8_t table[TABLE];
};

uint8_t grapheme_lookup(uint32_t code_point)
{
    const uint32_t syllables = 0xAC00, count = 11172, trailing = 28;
    if (code_point - syllables < count) {
        return (code_point - syllables) % trailing == 0 ? GRAPHEME_LV : GRAPHEME_LVT;
    }
    uint32_t low = 0, high = grapheme_range_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (grapheme_ranges[middle].first <= code_point) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return grapheme_ranges[low].class;
}

/* Reading. */

static int read_sextet(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) : -1;
}

/* False if the text is not base64 with its padding. */
static bool decode_base64(const char *text, struct buffer *out)
{
    size_t length = strlen(text);
    if (length % 4 != 0) { return false; }
    for (size_t at = 0; at < length; at += 4) {
        bool last = at + 4 == length;
        int padding = last && text[at + 3] == '=' ? text[at + 2] == '=' ? 2 : 1 : 0;
        uint32_t bits = 0;
        for (int i = 0; i < 4; i++) {
            int value = i >= 4 - padding ? 0 : read_sextet(text[at + (size_t)i]);
            if (value < 0) { return false; }
            bits = bits << 6 | (uint32_t)value;
        }
        const unsigned char bytes[3] = {(unsigned char)(bits >> 16), (unsigned char)(bits >> 8), (unsigned char)bits};
        buffer_append(out, bytes, (size_t)(3 - padding));
    }
    return true;
}

/* The trie of the file: a unit's child for a byte is at its place, xor its offset, xor the byte. */
struct units {
    const unsigned char *bytes;
    size_t count;
    size_t visited;
};

static uint32_t unit_at(const struct units *units, size_t place)
{
    const unsigned char *b = units->bytes + 4 * place;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static size_t unit_offset(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & (1u << 9)) >> 6);
}

/* The keys that are found. */
struct keys {
    struct trie_key *keys;
    char (*bytes)[MAX_CHUNK];
    size_t count, room;
};

static bool grow_keys(struct keys *keys)
{
    if (keys->count < keys->room) { return true; }
    size_t room = keys->room * 2 + 1024;
    void *bytes = realloc(keys->bytes, room * sizeof *keys->bytes);
    if (bytes) { keys->bytes = bytes; }
    void *entries = realloc(keys->keys, room * sizeof *keys->keys);
    if (entries) { keys->keys = entries; }
    if (!bytes || !entries) { return false; }
    keys->room = room;
    return true;
}

static enum status add_key(struct charsmap *map, struct keys *keys, const char *key, size_t length, uint32_t value,
                           struct err *err)
{
    if (value >= map->texts.length) {
        return err_set(err, STATUS_BAD_INPUT, "precompiled_charsmap: a replacement is out of range");
    }
    const char *text = map->texts.data + value;
    size_t size = strnlen(text, map->texts.length - value);
    if (!utf8_valid(text, size)) {
        return err_set(err, STATUS_BAD_INPUT, "precompiled_charsmap: a replacement is not UTF-8");
    }
    if (!grow_keys(keys)) { return err_set(err, STATUS_NO_MEMORY, "precompiled_charsmap: no memory for keys"); }
    memcpy(keys->bytes[keys->count], key, length);
    keys->keys[keys->count] = (struct trie_key){NULL, length, (int32_t)value};
    keys->count++;
    size_t sizes[2] = {0, size};
    for (size_t i = 0; i < size; i++) { sizes[0] += ((unsigned char)text[i] & 0xC0) != 0x80; }
    for (int i = 0; i < 2; i++) {
        size_t growth = (sizes[i] + length - 1) / length;
        if (growth > map->growth[i]) { map->growth[i] = growth; }
    }
    return STATUS_OK;
}

/* Lists the keys below the node whose children are counted from `base`. A trie has no more nodes than units. */
static enum status list_keys(struct charsmap *map, struct units *units, size_t base, char *key, size_t length,
                             struct keys *keys, struct err *err)
{
    for (size_t byte = 1; byte < 256; byte++) {
        size_t place = base ^ byte;
        if (place >= units->count) { continue; }
        uint32_t unit = unit_at(units, place);
        if ((unit & (1u << 31 | 0xFF)) != byte) { continue; }
        key[length] = (char)byte;
        size_t below = place ^ unit_offset(unit);
        if (++units->visited > units->count) {
            return err_set(err, STATUS_BAD_INPUT, "precompiled_charsmap: the trie is none");
        }
        if (unit & (1u << 8)) {
            uint32_t value = below < units->count ? unit_at(units, below) & INT32_MAX : UINT32_MAX;
            TRY(add_key(map, keys, key, length + 1, value, err));
        } else if (length + 1 < MAX_CHUNK) {
            TRY(list_keys(map, units, below, key, length + 1, keys, err));
        }
    }
    return STATUS_OK;
}

static enum status keep_keys(struct charsmap *map, struct keys *keys, struct err *err)
{
    map->replacements = calloc(keys->count + 1, sizeof *map->replacements);
    if (!map->replacements) { return err_set(err, STATUS_NO_MEMORY, "precompiled_charsmap: no memory"); }
    for (size_t i = 0; i < keys->count; i++) {
        uint32_t at = (uint32_t)keys->keys[i].id;
        map->replacements[i] =
            (struct replacement){at, (uint32_t)strnlen(map->texts.data + at, map->texts.length - at)};
        keys->keys[i].bytes = keys->bytes[i];
        keys->keys[i].id = (int32_t)i;
    }
    return keys->count > 0 ? trie_build(keys->keys, keys->count, &map->trie, err) : STATUS_OK;
}

/* The replacement of a character's or grapheme's bytes: that of the shortest key that they begin with; NULL for none.
 */
static const struct replacement *find_replacement(const struct charsmap *map, const char *bytes, size_t length)
{
    int32_t node = TRIE_ROOT;
    for (size_t i = 0; map->trie && i < length; i++) {
        node = trie_child(map->trie, node, bytes[i]);
        if (node == TRIE_NONE) { return NULL; }
        int32_t id = trie_id(map->trie, node);
        if (id != TRIE_NONE) { return &map->replacements[id]; }
    }
    return NULL;
}

static void fill_table(struct charsmap *map)
{
    for (uint32_t c = 0; c < TABLE; c++) {
        char bytes[4];
        if (c >= 0xD800 && c < 0xE000) { continue; }
        size_t length = utf8_put(bytes, c);
        map->table[c] = grapheme_lookup(c) & GRAPHEME_CLASS;
        if (find_replacement(map, bytes, length)) {
            map->table[c] |= MAPPED;
        } else if (map->trie && trie_walk(map->trie, TRIE_ROOT, bytes, length) != TRIE_NONE) {
            map->table[c] |= BEGINS;
        }
    }
}

static enum status read_map(struct charsmap *map, const struct buffer *blob, struct keys *keys, struct err *err)
{
    const unsigned char *bytes = (const unsigned char *)blob->data;
    struct units units = {bytes + 4, 0, 0};
    size_t size = blob->length < 4 ? SIZE_MAX : unit_at(&(struct units){bytes, 1, 0}, 0);
    if (size > blob->length - 4 || size % 4 != 0 || size == 0) {
        return err_set(err, STATUS_BAD_INPUT, "precompiled_charsmap: the trie does not fit the data");
    }
    units.count = size / 4;
    buffer_append(&map->texts, blob->data + 4 + size, blob->length - 4 - size);
    if (!buffer_ok(&map->texts)) { return err_set(err, STATUS_NO_MEMORY, "precompiled_charsmap: no memory"); }
    map->growth[0] = map->growth[1] = 1;
    char key[MAX_CHUNK];
    TRY(list_keys(map, &units, unit_offset(unit_at(&units, 0)), key, 0, keys, err));
    TRY(keep_keys(map, keys, err));
    fill_table(map);
    return STATUS_OK;
}

enum status charsmap_open(const char *base64, struct charsmap **out, struct err *err)
{
    struct buffer blob = {0};
    struct keys keys = {0};
    struct charsmap *map = calloc(1, sizeof *map);
    enum status status = STATUS_OK;
    *out = NULL;
    bool decoded = decode_base64(base64, &blob);
    if (!map || !buffer_ok(&blob)) {
        status = err_set(err, STATUS_NO_MEMORY, "precompiled_charsmap: no memory");
    } else if (!decoded) {
        status = err_set(err, STATUS_BAD_INPUT, "precompiled_charsmap is not base64");
    } else {
        status = read_map(map, &blob, &keys, err);
    }
    free(keys.bytes);
    free(keys.keys);
    buffer_free(&blob);
    if (status == STATUS_OK) {
        *out = map;
    } else {
        charsmap_close(map);
    }
    return status;
}

void charsmap_close(struct charsmap *map)
{
    if (!map) { return; }
    trie_close(map->trie);
    free(map->replacements);
    buffer_free(&map->texts);
    free(map);
}

size_t charsmap_growth(const struct charsmap *map, bool bytes)
{
    return map->growth[bytes];
}

bool charsmap_keeps_words(const struct charsmap *map)
{
    for (char c = ' '; c <= 'z'; c++) {
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!letter && c != ' ' && !(c >= '0' && c <= '9')) { continue; }
        const struct replacement *to = find_replacement(map, &c, 1);
        if (!to) { continue; }
        char is = to->length == 1 ? map->texts.data[to->at] : '\0';
        if (is != c && !(letter && is == (c | 0x20))) { return false; }
    }
    return true;
}

/* Applying. */

/* The state of the grapheme that is being read: its last character, and whether a picture or an Indic consonant may go
 * on. */
struct cluster {
    uint32_t code_point;
    uint8_t class;
    bool picture, joins_picture;     /* a picture with extensions; and a joiner after them */
    bool consonant, joins_consonant; /* the same with a linker among the extensions */
};

static bool is_extension(uint8_t class)
{
    return class == GRAPHEME_EXTEND || class == GRAPHEME_LINKER;
}

static void add_to_cluster(struct cluster *cluster, uint32_t code_point, uint8_t class)
{
    bool goes_on = is_extension(class) && code_point != ZWNJ;
    cluster->joins_picture = cluster->picture && code_point == ZWJ;
    cluster->picture = class == GRAPHEME_PICTURE || (cluster->picture && is_extension(class));
    cluster->consonant = class == GRAPHEME_CONSONANT || (cluster->consonant && (goes_on || code_point == ZWJ));
    cluster->joins_consonant =
        cluster->consonant && class != GRAPHEME_CONSONANT && (cluster->joins_consonant || class == GRAPHEME_LINKER);
    cluster->code_point = code_point;
    cluster->class = class;
}

static bool joins_hangul(uint8_t before, uint8_t behind)
{
    if (before == GRAPHEME_L) {
        return behind == GRAPHEME_L || behind == GRAPHEME_V || behind == GRAPHEME_LV || behind == GRAPHEME_LVT;
    }
    if (before == GRAPHEME_V || before == GRAPHEME_LV) { return behind == GRAPHEME_V || behind == GRAPHEME_T; }
    return (before == GRAPHEME_T || before == GRAPHEME_LVT) && behind == GRAPHEME_T;
}

/* Flags of regions, which are pairs of characters of four bytes, need no rule: the result is the same. */
static bool joins_cluster(const struct cluster *cluster, uint32_t code_point, uint8_t class)
{
    if (cluster->class == GRAPHEME_CONTROL || class == GRAPHEME_CONTROL) {
        return cluster->code_point == '\r' && code_point == '\n';
    }
    return is_extension(class) || class == GRAPHEME_SPACING || cluster->class == GRAPHEME_PREPEND ||
           joins_hangul(cluster->class, class) || (cluster->joins_consonant && class == GRAPHEME_CONSONANT) ||
           (cluster->joins_picture && class == GRAPHEME_PICTURE);
}

static uint8_t entry_of(const struct charsmap *map, uint32_t code_point)
{
    if (code_point < TABLE) { return map->table[code_point]; }
    return (grapheme_lookup(code_point) & GRAPHEME_CLASS) | MAPPED | BEGINS;
}

/* The text that is being mapped; parts that do not change are copied in one go. */
struct mapping {
    const struct charsmap *map;
    const char *text;
    size_t kept; /* all text before it has been written */
    struct buffer *out;
    struct origin *origin;
};

/* Writes text as it is, up to `until`. */
static void put_kept(struct mapping *mapping, size_t until)
{
    buffer_append(mapping->out, mapping->text + mapping->kept, until - mapping->kept);
    origin_keep(mapping->origin, mapping->text + mapping->kept, until - mapping->kept);
}

static size_t count_characters(const char *text, size_t length)
{
    size_t count = 0;
    for (size_t at = 0; at < length; count++) { utf8_next(text, &at); }
    return count;
}

/* If there are more characters than before, the last ones count as inserted; if there are fewer, the last one replaces
 * the others, too.
 */
static void follow_replacement(struct origin *origin, const char *from, size_t from_length, const char *to,
                               size_t to_length)
{
    size_t before = count_characters(from, from_length), after = count_characters(to, to_length);
    for (size_t at = 0, number = 0; at < to_length; number++) {
        size_t start = at;
        utf8_next(to, &at);
        origin_put(origin, at - start, number < before);
    }
    if (before > after) { origin_drop(origin, before - after); }
}

static bool replace_cluster(struct mapping *mapping, size_t from, size_t until)
{
    const struct replacement *to = find_replacement(mapping->map, mapping->text + from, until - from);
    if (!to) { return false; }
    const char *content = mapping->map->texts.data + to->at;
    put_kept(mapping, from);
    buffer_append(mapping->out, content, to->length);
    if (origin_follows(mapping->origin)) {
        follow_replacement(mapping->origin, mapping->text + from, until - from, content, to->length);
    }
    mapping->kept = until;
    return true;
}

static void apply_to_cluster(struct mapping *mapping, size_t from, size_t until, uint8_t first)
{
    if (until - from <= MAX_CHUNK && (first & (MAPPED | BEGINS)) && replace_cluster(mapping, from, until)) { return; }
    while (from < until) {
        size_t next = from;
        uint8_t entry = entry_of(mapping->map, utf8_next(mapping->text, &next));
        if (entry & MAPPED) { (void)replace_cluster(mapping, from, next); }
        from = next;
    }
}

void charsmap_apply(const struct charsmap *map, const char *text, size_t length, struct buffer *out,
                    struct origin *origin)
{
    struct mapping mapping = {map, text, 0, out, origin};
    size_t at = 0;
    while (at < length) {
        while (at + 1 < length && ((unsigned char)text[at] | (unsigned char)text[at + 1]) < 0x80 &&
               map->table[(unsigned char)text[at]] == GRAPHEME_OTHER) {
            at++; /* nearly all of English: this character is not changed */
        }
        size_t end = at;
        struct cluster cluster = {0};
        uint32_t code_point = utf8_next(text, &end);
        uint8_t first = entry_of(map, code_point), entry = 0;
        add_to_cluster(&cluster, code_point, first & GRAPHEME_CLASS);
        size_t alone = end, last = end; /* the ends of its first and its last character */
        while (end < length) {
            code_point = utf8_next(text, &end);
            entry = entry_of(map, code_point) & GRAPHEME_CLASS;
            if (!joins_cluster(&cluster, code_point, entry)) { break; }
            add_to_cluster(&cluster, code_point, entry);
            last = end;
        }
        if (first & MAPPED || last > alone) { apply_to_cluster(&mapping, at, last, first); }
        at = last;
    }
    if (mapping.kept < length) { put_kept(&mapping, length); }
}
