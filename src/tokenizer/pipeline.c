/* A long stretch is read in windows: a window ends at a blank between two ASCII letters or digits, which no step looks
 * across unless pipeline.whole is set. So a text is read hardly further than its last id, and a step may process its
 * input as a whole without much memory.
 *
 * Source: the behaviour of the steps in tokenizers 0.23. */
#include "tokenizer/pipeline.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

enum { WINDOW_BYTES = 2048 };

/* Normalisation. */

/* A stretch between added tokens, or a window of it. */
struct stretch {
    const char *bytes;
    size_t length;
    size_t front;              /* the number of bytes at its beginning that came from the first character of the text */
    const struct span *places; /* of its bytes in the text; NULL: not asked for */
    uint32_t start;            /* where it begins in the text */
    bool left;                 /* it begins at the beginning of a stretch */
    bool right;                /* it ends at the end of a stretch */
};

static void lowercase_stretch(const struct stretch *stretch, struct buffer *out, struct origin *origin)
{
    for (size_t at = 0; at < stretch->length && buffer_ok(out);) {
        uint32_t parts[UNICODE_MAX_PARTS];
        size_t count = unicode_lowercase(utf8_next(stretch->bytes, &at), parts);
        if (!buffer_reserve(out, 4 * UNICODE_MAX_PARTS)) { return; }
        for (size_t i = 0; i < count; i++) {
            size_t size = utf8_put(out->data + out->length, parts[i]);
            out->length += size;
            origin_put(origin, size, i == 0);
        }
    }
}

static void keep_text(const struct stretch *stretch, size_t from, size_t until, struct buffer *out,
                      struct origin *origin)
{
    buffer_append(out, stretch->bytes + from, until - from);
    origin_keep(origin, stretch->bytes + from, until - from);
}

/* A replacement of several characters comes from the last of them. */
static void replace_string(const struct normal_step *step, const struct stretch *stretch, struct buffer *out,
                           struct origin *origin)
{
    bool blanks = step->kind == STEP_REPLACE_BLANKS;
    const char *pattern = blanks ? "  " : step->pattern;
    size_t size = strlen(pattern), at = 0;
    while (at < stretch->length) {
        const char *found = memmem(stretch->bytes + at, stretch->length - at, pattern, size);
        size_t until = found ? (size_t)(found - stretch->bytes) : stretch->length;
        keep_text(stretch, at, until, out, origin);
        if (!found) { return; }
        at = until + size;
        while (blanks && at < stretch->length && stretch->bytes[at] == ' ') { at++; }
        origin_skip(origin, at - until);
        buffer_string(out, step->content);
        origin_insert(origin, step->content);
    }
}

static void strip_stretch(const struct normal_step *step, const struct stretch *stretch, struct buffer *out,
                          struct origin *origin)
{
    size_t from = 0, until = stretch->length;
    if (step->left && stretch->left) { from = added_space_after(stretch->bytes, until, 0); }
    if (step->right && stretch->right) { until = added_space_before(stretch->bytes, from, until); }
    origin_skip(origin, from);
    keep_text(stretch, from, until, out, origin);
}

/* The first character of what is put before the text replaces that of the text, which is then inserted. */
static void prepend_string(const struct normal_step *step, const struct stretch *stretch, struct buffer *out,
                           struct origin *origin)
{
    size_t next = 0, first = 0;
    if (stretch->left) {
        utf8_next(stretch->bytes, &next);
        utf8_next(step->content, &first);
        buffer_string(out, step->content);
        origin_put(origin, first, 1);
        origin_insert(origin, step->content + first);
        buffer_append(out, stretch->bytes, next);
        origin_put(origin, next, 0);
    }
    keep_text(stretch, next, stretch->length, out, origin);
}

#define DROPPED UINT32_MAX

/* The character that Nmt replaces a character by. */
static uint32_t map_nmt(uint32_t c)
{
    if ((c >= 0x1 && c <= 0x8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) {
        return DROPPED;
    }
    bool blank = c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                 c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
    return blank ? ' ' : c;
}

/* The character that a step replaces a character by. */
static uint32_t map_character(enum normal_step_kind kind, uint32_t code_point)
{
    if (kind == STEP_NMT) { return map_nmt(code_point); }
    if (kind == STEP_STRIP_ACCENTS) { return grapheme_lookup(code_point) & GRAPHEME_COMBINING ? DROPPED : code_point; }
    if (kind == STEP_STRIP_MARKS && code_point < 0x80) { return code_point; }
    uint8_t flags = unicode_lookup(code_point)->flags;
    if (kind == STEP_STRIP_MARKS) { return flags & UNICODE_MARK ? DROPPED : code_point; }
    return flags & UNICODE_CONTROL ? DROPPED : flags & UNICODE_SPACE ? ' ' : code_point; /* STEP_CLEAN */
}

/* Characters are kept, dropped or turned into a blank. */
static void filter_characters(const struct normal_step *step, const struct stretch *stretch, struct buffer *out,
                              struct origin *origin)
{
    size_t start = 0; /* of what is kept */
    for (size_t at = 0; at < stretch->length;) {
        size_t from = at;
        uint32_t code_point = utf8_next(stretch->bytes, &at), kept = map_character(step->kind, code_point);
        if (kept == code_point) { continue; }
        keep_text(stretch, start, from, out, origin);
        start = at;
        if (kept == DROPPED) {
            origin_skip(origin, at - from);
        } else {
            buffer_append(out, " ", 1);
            origin_put(origin, 1, 1);
        }
    }
    keep_text(stretch, start, stretch->length, out, origin);
}

static void pad_cjk(const struct stretch *stretch, struct buffer *out, struct origin *origin)
{
    size_t start = 0; /* of what is kept */
    for (size_t at = 0; at < stretch->length;) {
        size_t from = at;
        uint32_t code_point = utf8_next(stretch->bytes, &at);
        if (code_point < 0x80 || !(unicode_lookup(code_point)->flags & UNICODE_CJK)) { continue; }
        keep_text(stretch, start, from, out, origin);
        start = at;
        buffer_append(out, " ", 1);
        origin_put(origin, 1, 1);
        buffer_append(out, stretch->bytes + from, at - from);
        origin_put(origin, at - from, 0);
        buffer_append(out, " ", 1);
        origin_put(origin, 1, 0);
    }
    keep_text(stretch, start, stretch->length, out, origin);
}

/* `places` becomes those of the output, if they are asked for. */
static void normalize_step(const struct normal_step *step, struct stretch *stretch, struct buffer *out,
                           struct buffer *places)
{
    struct origin followed = {.text = stretch->bytes,
                              .front = stretch->front,
                              .places = stretch->places,
                              .to = places,
                              .start = stretch->start};
    struct origin *origin = stretch->front > 0 || stretch->places ? &followed : NULL;
    switch (step->kind) {
    case STEP_REPLACE:
    case STEP_REPLACE_BLANKS:
        replace_string(step, stretch, out, origin);
        break;
    case STEP_STRIP:
        strip_stretch(step, stretch, out, origin);
        break;
    case STEP_LOWERCASE:
        lowercase_stretch(stretch, out, origin);
        break;
    case STEP_PREPEND:
        prepend_string(step, stretch, out, origin);
        break;
    case STEP_PRECOMPILED:
        charsmap_apply(step->map, stretch->bytes, stretch->length, out, origin);
        break;
    case STEP_STRIP_ACCENTS:
    case STEP_STRIP_MARKS:
    case STEP_NMT:
    case STEP_CLEAN:
        filter_characters(step, stretch, out, origin);
        break;
    case STEP_PAD_CJK:
        pad_cjk(stretch, out, origin);
        break;
    case STEP_UNICODE:
        unicode_normalize(step->unicode, stretch->bytes, stretch->length, out, origin);
        break;
    }
    stretch->front = origin_end(&followed);
}

/* Leaves the normal form in the stretch, whose bytes are then in one of the two buffers, and their places, if they are
 * asked for, in one of the two others. Every step turns empty text into empty text. */
static bool normalize_stretch(const struct pipeline *pipeline, struct buffer normal[2], struct buffer *places,
                              struct stretch *stretch)
{
    for (size_t i = 0; i < pipeline->normal_count && stretch->length > 0; i++) {
        struct buffer *out = &normal[i & 1], *to = places ? &places[i & 1] : NULL;
        out->length = 0;
        if (to) { to->length = 0; }
        normalize_step(&pipeline->normal[i], stretch, out, to);
        if (!buffer_ok(out) || (to && !buffer_ok(to))) { return false; }
        stretch->bytes = out->data;
        stretch->length = out->length;
        if (to) { stretch->places = (struct span *)(void *)to->data; }
    }
    return true;
}

void pipeline_normalize(const struct pipeline *pipeline, const char *text, size_t length, struct buffer *out)
{
    struct buffer normal[2] = {{0}, {0}};
    struct stretch stretch = {.bytes = text, .length = length, .left = true, .right = true};
    if (normalize_stretch(pipeline, normal, NULL, &stretch)) {
        buffer_append(out, stretch.bytes, stretch.length);
    } else {
        out->broken = true;
    }
    buffer_free(&normal[0]);
    buffer_free(&normal[1]);
}

/* Splitting. Each step hands its pieces to the next; the last one's go to the model. False: memory ran out. */

static bool split_piece(struct pipeline_run *run, size_t step, struct piece piece);

/* The buffer for the places of a split step's output, empty; NULL: not asked for. */
static struct buffer *places_after(const struct pipeline_run *run, size_t step)
{
    if (!run->places) { return NULL; }
    run->places[PLACES_PIECES + step].length = 0;
    return &run->places[PLACES_PIECES + step];
}

/* The places of a piece; NULL: not asked for. */
static const struct span *places_of(const struct pipeline_run *run, struct piece piece)
{
    const struct id_sink *sink = run->sink;
    return sink->placing ? sink->placed.places + (piece.bytes - sink->placed.bytes) : NULL;
}

/* Hands a part of a piece to the next step. */
static bool split_part(struct pipeline_run *run, size_t step, struct piece piece, size_t from, size_t until)
{
    return split_piece(run, step + 1, (struct piece){piece.bytes + from, until - from, piece.first && from == 0});
}

static bool split_whitespace(struct pipeline_run *run, size_t step, struct piece piece)
{
    size_t from = 0;
    for (size_t at = 0; at < piece.length && !id_sink_full(run->sink);) {
        size_t next = at;
        uint32_t code_point = utf8_next(piece.bytes, &next);
        bool space = code_point < 0x80 ? code_point == ' ' || (code_point >= '\t' && code_point <= '\r')
                                       : (unicode_lookup(code_point)->flags & UNICODE_SPACE) != 0;
        size_t end = space ? at : next;
        if ((space || next == piece.length) && from < end && !split_part(run, step, piece, from, end)) { return false; }
        at = next;
        if (space) { from = next; }
    }
    return true;
}

/* Appends the piece to `out` with marks for blanks, and with a mark before it if it needs one. A mark has the place of
 * its blank, or that of the character that it is put before. */
static void put_marked(const struct split_step *split, struct piece piece, const struct span *from, struct buffer *out,
                       struct buffer *places)
{
    size_t size = strlen(split->mark);
    bool marked = piece.bytes[0] == ' ' || (piece.length >= size && memcmp(piece.bytes, split->mark, size) == 0);
    if (!marked && (split->prepend == PREPEND_ALWAYS || (split->prepend == PREPEND_FIRST && piece.first))) {
        buffer_append(out, split->mark, size);
        if (from) { spans_put(places, from[0], size); }
    }
    for (size_t at = 0; at < piece.length;) {
        const char *found = memchr(piece.bytes + at, ' ', piece.length - at);
        size_t end = found ? (size_t)(found - piece.bytes) : piece.length;
        buffer_append(out, piece.bytes + at, end - at);
        if (from) { buffer_append(places, from + at, (end - at) * sizeof *from); }
        if (found) { buffer_append(out, split->mark, size); }
        if (found && from) { spans_put(places, from[end], size); }
        at = end + (found != NULL);
    }
}

/* The next mark, or NULL. In a word of a few bytes this is found faster than by memmem. */
static const char *find_mark(const char *bytes, size_t length, const char *mark, size_t size)
{
    const char *end = bytes + length;
    while ((bytes = memchr(bytes, mark[0], (size_t)(end - bytes)))) {
        if ((size_t)(end - bytes) < size) { return NULL; }
        if (memcmp(bytes, mark, size) == 0) { return bytes; }
        bytes++;
    }
    return NULL;
}

static bool split_metaspace(struct pipeline_run *run, size_t step, struct piece piece)
{
    const struct split_step *split = &run->pipeline->split[step];
    struct buffer *marked = &run->pieces[step], *places = places_after(run, step);
    struct placed outer = run->sink->placed;
    size_t size = strlen(split->mark);
    marked->length = 0;
    put_marked(split, piece, places_of(run, piece), marked, places);
    if (!buffer_ok(marked) || (places && !buffer_ok(places))) { return false; }
    piece.bytes = marked->data;
    piece.length = marked->length;
    if (places) { run->sink->placed = (struct placed){marked->data, (struct span *)(void *)places->data}; }
    for (size_t at = 0; at < piece.length && !id_sink_full(run->sink);) {
        const char *from = piece.bytes + at, *found = NULL;
        size_t left = piece.length - at;
        size_t own = left >= size && memcmp(from, split->mark, size) == 0 ? size : 0; /* the first may have no mark */
        if (split->split) { found = find_mark(from + own, left - own, split->mark, size); }
        size_t end = found ? (size_t)(found - piece.bytes) : piece.length;
        if (!split_part(run, step, piece, at, end)) { return false; }
        at = end;
    }
    run->sink->placed = outer;
    return true;
}

static bool split_pattern(struct pipeline_run *run, size_t step, struct piece piece)
{
    const struct pattern *pattern = run->pipeline->split[step].pattern;
    for (size_t at = 0, end; at < piece.length && !id_sink_full(run->sink); at = end) {
        end = pattern_next(pattern, piece.bytes, piece.length, at);
        if (!split_part(run, step, piece, at, end)) { return false; }
    }
    return true;
}

static bool split_behind(struct pipeline_run *run, size_t step, struct piece piece)
{
    const char *string = run->pipeline->split[step].string;
    size_t size = strlen(string);
    for (size_t at = 0, end; at < piece.length && !id_sink_full(run->sink); at = end) {
        const char *found = memmem(piece.bytes + at, piece.length - at, string, size);
        end = found ? (size_t)(found - piece.bytes) + size : piece.length;
        if (!split_part(run, step, piece, at, end)) { return false; }
    }
    return true;
}

static bool split_punctuation(struct pipeline_run *run, size_t step, struct piece piece)
{
    size_t from = 0;
    for (size_t at = 0, next = 0; at < piece.length && !id_sink_full(run->sink); at = next) {
        bool alone = (unicode_lookup(utf8_next(piece.bytes, &next))->flags & UNICODE_PUNCTUATION) != 0;
        if (alone && from < at && !split_part(run, step, piece, from, at)) { return false; }
        if ((alone || next == piece.length) && !split_part(run, step, piece, alone ? at : from, next)) { return false; }
        if (alone) { from = next; }
    }
    return true;
}

static bool split_byte_level(struct pipeline_run *run, size_t step, struct piece piece)
{
    const struct split_step *split = &run->pipeline->split[step];
    const struct placed outer = run->sink->placed;
    if (split->blank && piece.bytes[0] != ' ') {
        struct buffer *blank = &run->pieces[step], *places = places_after(run, step);
        const struct span *from = places_of(run, piece);
        blank->length = 0;
        buffer_append(blank, " ", 1);
        buffer_append(blank, piece.bytes, piece.length);
        if (from) {
            spans_put(places, from[0], 1);
            buffer_append(places, from, piece.length * sizeof *from);
        }
        if (!buffer_ok(blank) || (places && !buffer_ok(places))) { return false; }
        piece.bytes = blank->data;
        piece.length = blank->length;
        if (places) { run->sink->placed = (struct placed){blank->data, (struct span *)(void *)places->data}; }
    }
    bool done = split->pattern ? split_pattern(run, step, piece) : split_piece(run, step + 1, piece);
    run->sink->placed = outer;
    return done;
}

static bool split_piece(struct pipeline_run *run, size_t step, struct piece piece)
{
    if (step == run->pipeline->split_count) { return run->encode(run->tokenizer, piece, &run->scratch, run->sink); }
    switch (run->pipeline->split[step].kind) {
    case SPLIT_WHITESPACE:
        return split_whitespace(run, step, piece);
    case SPLIT_METASPACE:
        return split_metaspace(run, step, piece);
    case SPLIT_PATTERN:
    case SPLIT_NUMBERS:
        return split_pattern(run, step, piece);
    case SPLIT_BEHIND:
        return split_behind(run, step, piece);
    case SPLIT_PUNCTUATION:
        return split_punctuation(run, step, piece);
    case SPLIT_BYTE_LEVEL:
        return split_byte_level(run, step, piece);
    }
    return true;
}

/* From a text to its stretches. */

/* Normalises a stretch without raw added tokens, finds the others in it, and encodes the parts between them. */
static bool encode_stretch(struct pipeline_run *run, struct stretch stretch)
{
    if (!normalize_stretch(run->pipeline, run->normal, run->places, &stretch)) { return false; }
    run->sink->placed = (struct placed){stretch.bytes, stretch.places};
    struct added_cuts cuts = {run->normalized, stretch.bytes, stretch.length};
    while (cuts.at < stretch.length && !id_sink_full(run->sink)) {
        struct added_cut cut = added_cuts_next(&cuts, stretch.length);
        struct piece piece = {stretch.bytes + cut.from, cut.until - cut.from, cut.from < stretch.front};
        if (piece.length > 0 && !split_piece(run, 0, piece)) { return false; }
        if (cut.token) { id_sink_put_text(run->sink, cut.token->id, stretch.bytes + cut.until, cut.end - cut.until); }
    }
    return true;
}

/* Appends the places of text that is not normalised yet: of each byte, its character's. */
static void put_places(const char *text, size_t from, size_t until, struct buffer *places)
{
    while (from < until && buffer_ok(places)) {
        uint32_t start = (uint32_t)from;
        utf8_next(text, &from);
        spans_put(places, (struct span){start, (uint32_t)from}, from - start);
    }
}

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* The end of the window that begins at `at`. */
static size_t window_end(const char *text, size_t length, size_t at)
{
    for (size_t i = at + WINDOW_BYTES; i + 1 < length; i++) {
        if (text[i] == ' ' && is_plain(text[i - 1]) && is_plain(text[i + 1])) { return i; }
    }
    return length;
}

enum status pipeline_encode(struct pipeline_run *run, const char *text, size_t length, struct err *err)
{
    /* Places follow the package in its error about dropped characters (origin_drop), which lasts for a whole stretch.
     */
    bool left = true, whole = run->pipeline->whole || run->sink->placing;
    size_t valid = 0, until = 0;
    struct added_cuts cuts = {run->raw, text, length};
    if (run->sink->placing && !(run->places = calloc(PLACES_COUNT, sizeof *run->places))) {
        return err_set(err, STATUS_NO_MEMORY, "no memory to encode %zu bytes", length);
    }
    while (cuts.at < length && !id_sink_full(run->sink)) {
        if (cuts.at >= until) {
            until = whole ? length : window_end(text, length, cuts.at);
            if (valid < cuts.at) { valid = cuts.at; }
            if (valid < until) { valid += utf8_valid_prefix(text + valid, until - valid); }
            if (valid < until) {
                return err_set(err, STATUS_BAD_INPUT, "the text is not valid UTF-8 at byte %zu", valid);
            }
        }
        struct added_cut cut = added_cuts_next(&cuts, until);
        struct stretch stretch = {.bytes = text + cut.from,
                                  .length = cut.until - cut.from,
                                  .start = (uint32_t)cut.from,
                                  .left = left,
                                  .right = cut.token || until == length};
        if (cut.from == 0 && cut.until > 0 && run->pipeline->first) { utf8_next(text, &stretch.front); }
        struct buffer *places = run->places ? &run->places[PLACES_TEXT] : NULL;
        if (places) {
            places->length = 0;
            put_places(text, cut.from, cut.token ? cut.end : cut.until, places);
            stretch.places = (struct span *)(void *)places->data;
        }
        if ((places && !buffer_ok(places)) || (stretch.length > 0 && !encode_stretch(run, stretch))) {
            return err_set(err, STATUS_NO_MEMORY, "no memory to encode %zu bytes", length);
        }
        if (cut.token) {
            run->sink->placed = (struct placed){text + cut.from, stretch.places};
            id_sink_put_text(run->sink, cut.token->id, text + cut.until, cut.end - cut.until);
        }
        left = cut.token != NULL;
    }
    return STATUS_OK;
}

void pipeline_end(struct pipeline_run *run)
{
    for (size_t i = 0; run->places && i < PLACES_COUNT; i++) { buffer_free(&run->places[i]); }
    free(run->places);
    buffer_free(&run->normal[0]);
    buffer_free(&run->normal[1]);
    for (size_t i = 0; i < PIPELINE_MAX_STEPS; i++) { buffer_free(&run->pieces[i]); }
    buffer_free(&run->scratch);
}

enum status pipeline_set_bert(struct pipeline *pipeline, const struct normalizer_options *options, struct err *err)
{
    struct normal_step *step = pipeline->normal;
    if (options->clean_text) { *step++ = (struct normal_step){.kind = STEP_CLEAN}; }
    if (options->handle_chinese_chars) { *step++ = (struct normal_step){.kind = STEP_PAD_CJK}; }
    if (options->strip_accents) {
        struct unicode_normal *unicode = malloc(sizeof *unicode);
        if (!unicode) { return err_set(err, STATUS_NO_MEMORY, "no memory for a normalizer"); }
        unicode_prepare(unicode, UNICODE_NFD);
        *step++ = (struct normal_step){.kind = STEP_UNICODE, .unicode = unicode};
        *step++ = (struct normal_step){.kind = STEP_STRIP_MARKS};
    }
    if (options->lowercase) { *step++ = (struct normal_step){.kind = STEP_LOWERCASE}; }
    pipeline->normal_count = (size_t)(step - pipeline->normal);
    pipeline->split[pipeline->split_count++] = (struct split_step){.kind = SPLIT_WHITESPACE};
    pipeline->split[pipeline->split_count++] = (struct split_step){.kind = SPLIT_PUNCTUATION};
    return STATUS_OK;
}

/* The properties of a pipeline that follow from its steps. */

void pipeline_prepare(struct pipeline *pipeline)
{
    bool splits = false;
    for (size_t i = 0; i < pipeline->split_count; i++) {
        const struct split_step *split = &pipeline->split[i];
        bool at_blanks = split->pattern && split->kind != SPLIT_NUMBERS;
        splits |= split->kind == SPLIT_WHITESPACE || split->split || at_blanks;
        pipeline->first |= split->kind == SPLIT_METASPACE && split->prepend == PREPEND_FIRST;
    }
    pipeline->whole = !splits;
    for (size_t i = 0; i < pipeline->normal_count; i++) {
        const struct normal_step *step = &pipeline->normal[i];
        pipeline->whole |= step->kind == STEP_PRECOMPILED && !charsmap_keeps_words(step->map);
        if (step->kind != STEP_REPLACE) { continue; }
        for (const char *c = step->pattern; *c; c++) { pipeline->whole |= *c == ' ' || is_plain(*c); }
    }
}

/* A window's end must not cut a token, or the white space that it takes, or hide the letter that a token of blanks
 * touches. */
void pipeline_prepare_token(struct pipeline *pipeline, const struct added_token *flags, const char *token,
                            size_t length)
{
    for (size_t i = 1; i < length; i++) { pipeline->whole |= token[i] == ' ' && is_plain(token[i - 1]); }
    pipeline->whole |= flags->rstrip && length > 0 && is_plain(token[length - 1]);
    pipeline->whole |= flags->single_word && length > 0 && token[0] == ' ';
}

static size_t count_characters(const char *text)
{
    size_t count = 0;
    for (; *text; text++) { count += ((unsigned char)*text & 0xC0) != 0x80; }
    return count;
}

/* Multiplies up to UINT32_MAX, at which a text may fill any memory anyway, so that nothing wraps: texts and steps are
 * shorter than 4 GiB. */
static void raise_growth(size_t *growth, size_t by)
{
    *growth = *growth * by < UINT32_MAX ? *growth * by : UINT32_MAX;
}

/* A replaced string has at least one byte, as has a stretch or a piece. A step may put a blank before each piece. If
 * pieces are words between white space that is dropped, that blank takes its place, except for one; if they are between
 * added tokens, these have one character more than they need for their own id. */
size_t pipeline_growth(const struct pipeline *pipeline, bool bytes, bool letters, size_t *out)
{
    size_t growth = 1, more = 0;
    bool apart = !letters;
    for (size_t i = 0; i < pipeline->normal_count; i++) {
        const struct normal_step *step = &pipeline->normal[i];
        size_t added = step->content ? bytes ? strlen(step->content) : count_characters(step->content) : 0;
        if (step->kind == STEP_REPLACE || step->kind == STEP_REPLACE_BLANKS) {
            raise_growth(&growth, added > 1 ? added : 1);
        }
        if (step->kind == STEP_PREPEND) { raise_growth(&growth, 1 + added); }
        if (step->kind == STEP_LOWERCASE && bytes) { raise_growth(&growth, 2); }
        if (step->kind == STEP_PRECOMPILED) { raise_growth(&growth, charsmap_growth(step->map, bytes)); }
        if (step->kind == STEP_UNICODE) {
            enum unicode_form form = step->unicode->form;
            raise_growth(&growth, form & UNICODE_COMPATIBLE ? bytes ? 11 : 6 : bytes ? 3 : form == UNICODE_NFC ? 1 : 2);
        }
    }
    for (size_t i = 0; i < pipeline->split_count; i++) {
        const struct split_step *split = &pipeline->split[i];
        size_t blank = bytes && split->kind == SPLIT_METASPACE ? strlen(split->mark) : 1;
        bool put = split->kind == SPLIT_METASPACE ? split->prepend != PREPEND_NEVER : split->blank;
        raise_growth(&growth, blank);
        if (put && apart) { more += blank; }
        if (put && !apart) { raise_growth(&growth, 2); }
        apart &= split->kind == SPLIT_WHITESPACE;
    }
    *out = growth;
    return more;
}

bool pipeline_byte_level(const struct pipeline *pipeline)
{
    return pipeline->split_count > 0 && pipeline->split[pipeline->split_count - 1].kind == SPLIT_BYTE_LEVEL;
}

bool pipeline_lowercases(const struct pipeline *pipeline)
{
    for (size_t i = 0; i < pipeline->normal_count; i++) {
        if (pipeline->normal[i].kind == STEP_LOWERCASE) { return true; }
    }
    return false;
}

void pipeline_free(struct pipeline *pipeline)
{
    for (size_t i = 0; i < pipeline->normal_count; i++) {
        free(pipeline->normal[i].pattern);
        free(pipeline->normal[i].content);
        charsmap_close(pipeline->normal[i].map);
        free(pipeline->normal[i].unicode);
    }
    for (size_t i = 0; i < pipeline->split_count; i++) {
        pattern_close(pipeline->split[i].pattern);
        free(pipeline->split[i].string);
    }
    *pipeline = (struct pipeline){0};
}
