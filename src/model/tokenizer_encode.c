/* Encoding. The text is read in windows: each is checked to be UTF-8 and searched for added tokens, then its characters
 * go through the normalizer into one word at a time, whose ids go to the caller. Nothing is allocated, and nothing
 * behind the last id that was asked for is read.
 *
 * White space beside an added token needs no care here, since it ends words either way: lstrip and rstrip matter only
 * where tokens are also looked for in the normalised text. That rare way normalises whole stretches of text first. */
#include "model/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "model/tokenizer_parts.h"
#include "model/unicode.h"

enum { WINDOW_BYTES = 512 };

/* The word that is being read. */
struct splitter {
    const struct tokenizer *tokenizer;
    const struct normalizer *normalizer;
    struct id_sink *sink;
    size_t length;     /* bytes kept of it */
    size_t characters; /* counted on where it is too long to be kept */
    size_t run_start;  /* the marks that end it at run_end start here, sorted */
    size_t run_end;
    char word[WORDPIECE_MAX_CHARACTERS * 4];
};

static void end_word(struct splitter *splitter)
{
    if (splitter->characters > 0)
        wordpiece_encode(&splitter->tokenizer->model, splitter->word, splitter->length, splitter->characters,
                         splitter->sink);
    splitter->length = splitter->characters = 0;
    splitter->run_end = SIZE_MAX;
}

static void add_character(struct splitter *splitter, struct normal_character character)
{
    if (++splitter->characters > splitter->tokenizer->model.max_characters)
        return;
    if (character.order == 0) {
        splitter->length += utf8_put(splitter->word + splitter->length, character.code_point);
        return;
    }
    if (splitter->run_end != splitter->length)
        splitter->run_start = splitter->length;
    splitter->length += normalizer_insert(splitter->word, splitter->run_start, splitter->length, character);
    splitter->run_end = splitter->length;
}

/* Any character, by the tables. */
static void feed_slowly(struct splitter *splitter, uint32_t code_point)
{
    struct normal_character parts[NORMAL_MAX_CHARACTERS];
    size_t count = normalizer_expand(&splitter->normalizer->options, code_point, parts);
    for (size_t i = 0; i < count; i++) {
        if (parts[i].code_point == NORMAL_BREAK) {
            splitter->run_end = SIZE_MAX;
            continue;
        }
        uint8_t flags = unicode_lookup(parts[i].code_point)->flags;
        if (flags & (UNICODE_SPACE | UNICODE_PUNCTUATION))
            end_word(splitter);
        if (!(flags & UNICODE_SPACE))
            add_character(splitter, parts[i]);
        if (flags & UNICODE_PUNCTUATION)
            end_word(splitter);
    }
}

static void feed_entry(struct splitter *splitter, const struct normal_entry *entry)
{
    if (entry->kind != NORMAL_TEXT)
        end_word(splitter);
    if (entry->kind == NORMAL_SPACE)
        return;
    if (++splitter->characters <= splitter->tokenizer->model.max_characters) {
        memcpy(splitter->word + splitter->length, entry->bytes, sizeof entry->bytes);
        splitter->length += entry->length;
    }
    if (entry->kind == NORMAL_ISOLATED)
        end_word(splitter);
}

/* Splits text[from..until), valid UTF-8, until it ends or there are more ids than room. */
static void feed(struct splitter *splitter, const char *text, size_t from, size_t until)
{
    const struct normal_entry *table = splitter->normalizer->table;
    while (from < until && !id_sink_full(splitter->sink)) {
        uint32_t code_point = utf8_next(text, &from);
        if (code_point >= NORMAL_TABLE || table[code_point].kind == NORMAL_COMPLEX)
            feed_slowly(splitter, code_point);
        else if (table[code_point].kind != NORMAL_NOTHING)
            feed_entry(splitter, &table[code_point]);
    }
}

/* The usual way: all added tokens are looked for in the text as it is. */
static enum status encode_stream(struct splitter *splitter, const char *text, size_t length, struct err *err)
{
    size_t at = 0, searched = 0;
    while (at < length && !id_sink_full(splitter->sink)) {
        size_t window = length - at < WINDOW_BYTES ? length - at : WINDOW_BYTES;
        size_t until = at + utf8_valid_prefix(text + at, window);
        if (until == at)
            return err_set(err, STATUS_BAD_INPUT, "the text is not valid UTF-8 at byte %zu", at);
        if (searched < at)
            searched = at;
        struct added_match match;
        bool found = added_set_find(&splitter->tokenizer->raw, text, length, &searched, until, &match);
        feed(splitter, text, at, found ? match.start : until);
        at = found ? match.end : until;
        if (!found || id_sink_full(splitter->sink))
            continue;
        end_word(splitter);
        id_sink_put(splitter->sink, match.token->id);
    }
    end_word(splitter);
    return STATUS_OK;
}

/* Encodes a stretch without raw added tokens where some are looked for in normalised text. */
static enum status encode_stretch(struct splitter *splitter, const char *text, size_t length, struct err *err)
{
    struct buffer normal = {0};
    normalizer_text(splitter->tokenizer->normalizer, text, length, &normal);
    size_t at = 0, searched = 0;
    struct added_match match;
    while (at < normal.length && !id_sink_full(splitter->sink)) {
        bool found = added_set_find(&splitter->tokenizer->normalized, normal.data, normal.length, &searched,
                                    normal.length, &match);
        feed(splitter, normal.data, at, found ? match.start : normal.length);
        end_word(splitter);
        if (found)
            id_sink_put(splitter->sink, match.token->id);
        at = found ? match.end : normal.length;
    }
    bool complete = buffer_ok(&normal);
    buffer_free(&normal);
    return complete ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory to normalise %zu bytes", length);
}

/* The rare way: some added tokens are looked for in normalised text, so the raw ones' borders matter to the byte. */
static enum status encode_stretches(struct splitter *splitter, const char *text, size_t length, struct err *err)
{
    size_t valid = utf8_valid_prefix(text, length);
    if (valid != length)
        return err_set(err, STATUS_BAD_INPUT, "the text is not valid UTF-8 at byte %zu", valid);
    enum status status = STATUS_OK;
    for (size_t at = 0, searched = 0; at < length && status == STATUS_OK && !id_sink_full(splitter->sink);) {
        struct added_match match = {.start = length, .end = length};
        bool found = added_set_find(&splitter->tokenizer->raw, text, length, &searched, length, &match);
        if (found && match.token->lstrip)
            match.start = added_space_before(text, at < match.start ? at : match.start, match.start);
        if (at < match.start)
            status = encode_stretch(splitter, text + at, match.start - at, err);
        if (found)
            id_sink_put(splitter->sink, match.token->id);
        at = match.end;
        if (found && match.token->rstrip)
            at = added_space_behind(text, length, at);
    }
    return status;
}

static void put_specials(int32_t *ids, uint32_t *count, const int32_t *specials, uint32_t special_count)
{
    if (special_count > 0)
        memcpy(ids + *count, specials, special_count * sizeof *ids);
    *count += special_count;
}

enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length, uint32_t max_tokens,
                             int32_t *ids, uint32_t *count, bool *truncated, struct err *err)
{
    const struct tokenizer_template *specials = &tokenizer->specials;
    *count = 0;
    *truncated = false;
    if (max_tokens < specials->before_count + specials->behind_count)
        return err_set(err, STATUS_BAD_INPUT, "max_tokens %u has no room for the %u special tokens", max_tokens,
                       specials->before_count + specials->behind_count);
    put_specials(ids, count, specials->before, specials->before_count);
    struct id_sink sink = {.ids = ids + *count, .room = max_tokens - *count - specials->behind_count};
    struct splitter splitter; /* not zeroed: the word is large and written before it is read */
    splitter.tokenizer = tokenizer;
    splitter.normalizer = tokenizer->plain != NULL ? tokenizer->plain : tokenizer->normalizer;
    splitter.sink = &sink;
    splitter.length = splitter.characters = splitter.run_start = 0;
    splitter.run_end = SIZE_MAX;
    enum status status = tokenizer->plain != NULL ? encode_stretches(&splitter, text, length, err)
                                                  : encode_stream(&splitter, text, length, err);
    if (status != STATUS_OK) {
        *count = 0;
        return status;
    }
    *truncated = id_sink_full(&sink);
    *count += (uint32_t)(*truncated ? sink.room : sink.count);
    put_specials(ids, count, specials->behind, specials->behind_count);
    return STATUS_OK;
}

/* No character becomes more characters than it has bytes (make_unicode_tables.py checks it for each), and every id
 * stands for at least one character of the normalised text. Blanks around CJK, which the count leaves out, may become
 * ids where an added token is a blank: three for a character of at least three bytes. */
size_t tokenizer_bound(const struct tokenizer *tokenizer, size_t bytes)
{
    return bytes + tokenizer->specials.before_count + tokenizer->specials.behind_count;
}

uint32_t tokenizer_vocabulary(const struct tokenizer *tokenizer)
{
    return tokenizer->vocabulary;
}

uint32_t tokenizer_max_tokens(const struct tokenizer *tokenizer)
{
    return tokenizer->max_tokens;
}

bool tokenizer_lowercases(const struct tokenizer *tokenizer)
{
    return tokenizer->normalizer->options.lowercase;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return;
    for (size_t i = 0; i < tokenizer->added_count; i++)
        free(tokenizer->added[i].content);
    free(tokenizer->added);
    added_set_close(&tokenizer->raw);
    added_set_close(&tokenizer->normalized);
    trie_close(tokenizer->model.vocabulary);
    normalizer_close(tokenizer->normalizer);
    normalizer_close(tokenizer->plain);
    free(tokenizer);
}
